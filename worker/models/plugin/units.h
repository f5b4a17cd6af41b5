// A plug-in's units (plugin/muster/plugin.h) as units of a model. Both trees have the same form.
#ifndef MUSTER_WORKER_MODELS_PLUGIN_UNITS_H_
#define MUSTER_WORKER_MODELS_PLUGIN_UNITS_H_

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/util/Exception.h"
#include "muster/plugin.h"
#include "worker/models/unit.h"

namespace muster::models {

// An exception of the worker on its way through plug-in code that called the worker.
struct WorkersOwn {
  std::exception_ptr exception;
};

// Runs plug-in code. An exception of any kind becomes a ModelError "<who>: <text>", except a
// ModelError, an exception of the worker, and a lack of memory.
template <typename Body>
auto CallPlugin(const std::string& who, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const WorkersOwn& own) {
    std::rethrow_exception(own.exception);
  } catch (const ModelError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    if (IsLackOfMemory(error.what_without_backtrace())) throw;
    throw ModelError(who + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw ModelError(who + ": " + error.what());
  } catch (...) {
    throw ModelError(who + ": threw something that is no std::exception");
  }
}

class PluginUnit : public Unit {
 public:
  // `inner` must outlive this object. `who`: names plug-in and model in errors. `row`: for a root,
  // the shape to which rows are reshaped. INVALID_ARGUMENT if a parameter or buffer is not as
  // unit.h says, or a name appears twice.
  static absl::StatusOr<std::unique_ptr<PluginUnit>> Create(const std::string& who,
                                                            plugin::Unit& inner,
                                                            std::vector<int64_t> row);

  Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override;

  const plugin::Unit& inner() const { return inner_; }

 private:
  PluginUnit(const std::string& who, plugin::Unit& inner, std::vector<int64_t> row);

  const std::string who_;
  plugin::Unit& inner_;
  const std::vector<int64_t> row_;
  std::vector<PluginUnit*> callable_;
};

// A context for plug-in code, which may call only the units in `callable`.
class PluginContext : public plugin::Context {
 public:
  PluginContext(const std::string& who, std::span<PluginUnit* const> callable,
                ForwardContext& context)
      : who_(who), callable_(callable), context_(context) {}

  bool training() const override { return context_.training(); }
  at::Generator& generator() override { return context_.generator(); }
  at::Tensor Call(plugin::Unit& unit, const at::Tensor& x) override;
  Tensors CallMany(plugin::Unit& unit, const Tensors& inputs) override;

 private:
  const std::string& who_;
  const std::span<PluginUnit* const> callable_;
  ForwardContext& context_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_UNITS_H_
