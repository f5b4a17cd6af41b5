#include "worker/device/stand_in/stand_in_device.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/EmptyTensor.h"
#include "ATen/core/Tensor.h"
#include "ATen/detail/HPUHooksInterface.h"
#include "ATen/native/CPUFallback.h"
#include "ATen/native/Resize.h"
#include "ATen/ops/_reshape_alias_native.h"
#include "ATen/ops/as_strided_native.h"
#include "ATen/ops/convolution.h"
#include "ATen/ops/convolution_backward.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/native_batch_norm.h"
#include "ATen/ops/set_native.h"
#include "ATen/ops/view_native.h"
#include "c10/core/Allocator.h"
#include "c10/core/CPUAllocator.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "torch/library.h"

namespace muster::device {
namespace {

constexpr auto kType = c10::DeviceType::HPU;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::HPU);

std::atomic<int64_t> allocations = 0;
std::atomic<int> forbids_waiting = 0;

// The host memory that the program requested as pinned.
class PinnedMemory : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    const std::lock_guard lock(mutex_);
    ends_[memory] = static_cast<char*>(memory) + bytes;
    return {memory, memory, &Free, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static bool Has(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(const_cast<void*>(address));
    return next != ends_.begin() && std::prev(next)->second >= address;
  }

 private:
  static void Free(void* memory) {
    {
      const std::lock_guard lock(mutex_);
      ends_.erase(memory);
    }
    std::free(memory);
  }
  static inline std::mutex mutex_;
  static inline std::map<void*, void*> ends_;  // by begin
};

struct HostMemory : c10::Allocator {
  explicit HostMemory(c10::DeviceIndex index) : device(kType, index) {}
  c10::DataPtr allocate(size_t bytes) override {
    ++allocations;
    void* const memory = bytes == 0 ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return {memory, memory, &std::free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  const c10::Device device;
};

thread_local c10::DeviceIndex current = 0;

HostMemory* MemoryOf(std::optional<c10::Device> device) {
  static auto* const memories = [] {
    auto* const all = new std::vector<std::unique_ptr<HostMemory>>();
    for (c10::DeviceIndex i = 0; i < kStandInDevices; ++i) {
      all->push_back(std::make_unique<HostMemory>(i));
    }
    return all;
  }();
  return (*memories)[device.has_value() && device->has_index() ? device->index() : current].get();
}

// A guard for devices with one stream each, on which everything is done at once.
struct Guard : c10::impl::DeviceGuardImplInterface {
  static c10::Stream Only(c10::Device device) {
    return c10::Stream(c10::Stream::DEFAULT, MemoryOf(device)->device);
  }
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, std::exchange(current, device.index())};
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return Only(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return Only(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return Only(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return Only(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return Only(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kStandInDevices; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};

struct HPUHooks : at::HPUHooksInterface {
  explicit HPUHooks(at::HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kStandInDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* const pinned = new PinnedMemory();
    return pinned;
  }
  bool isPinnedPtr(const void* address) const override { return PinnedMemory::Has(address); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
};

at::Tensor Empty(c10::IntArrayRef size, std::optional<c10::ScalarType> type,
                 std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>,
                 std::optional<c10::MemoryFormat> format) {
  return at::Tensor(at::detail::empty_generic(size, MemoryOf(device), kKeys,
                                              c10::dtype_or_default(type), format));
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                        std::optional<c10::Device> device, std::optional<bool>) {
  return at::Tensor(at::detail::empty_strided_generic(size, stride, MemoryOf(device), kKeys,
                                                      c10::dtype_or_default(type)));
}

// Returns the same memory as a tensor on the CPU.
at::Tensor OnCpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  // data_ptr() of an empty storage is null, which from_blob allows for tensors without elements.
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(c10::kCPU).requires_grad(false));
}

// True while this thread computes, on copies, an operation that a GPU would compute itself.
thread_local bool on_copies = false;

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (forbids_waiting > 0 && !on_copies && from.is_cpu() != to.is_cpu() && to.numel() > 0) {
    const at::Tensor& host = from.is_cpu() ? from : to;
    TORCH_CHECK(non_blocking && PinnedMemory::Has(host.const_data_ptr()),
                "the host waits: a copy of ", host.toString(), " ", host.sizes(), " ",
                from.is_cpu() ? "to" : "from", " the device");
  }
  if (to.numel() > 0) OnCpu(to).copy_(OnCpu(from));
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes())
    at::native::resize_impl_cpu_(to.unsafeGetTensorImpl(), from.sizes(), from.strides());
  return CopyFrom(from, to, false);
}

const at::Tensor& Resize(const at::Tensor& tensor, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat>) {
  at::native::resize_impl_cpu_(tensor.unsafeGetTensorImpl(), size, std::nullopt);
  return tensor;
}

// Returns a copy on the device.
at::Tensor OnDevice(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined()) return tensor;
  const at::Tensor there = at::empty(tensor.sizes(), tensor.options().device(device));
  if (there.numel() > 0) OnCpu(there).copy_(tensor);
  return there;
}

std::optional<at::Tensor> OnCpu(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? std::optional(OnCpu(*tensor)) : std::nullopt;
}

// LibTorch leaves convolutions on such a device to the device's own kernels.
at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  return OnDevice(at::convolution(OnCpu(input), OnCpu(weight), OnCpu(bias), stride, padding,
                                  dilation, transposed, output_padding, groups),
                  input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
    c10::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(OnCpu(gradient), OnCpu(input), OnCpu(weight), std::nullopt, stride,
                               padding, dilation, transposed, output_padding, groups, wanted);
  const c10::Device device = input.device();
  return {OnDevice(of_input, device), OnDevice(of_weight, device), OnDevice(of_bias, device)};
}

// Batch normalization changes the running values in place, although its schema does not say so. On
// copies, the running values would not change.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNorm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps) {
  const auto [output, mean, inverse] =
      at::native_batch_norm(OnCpu(input), OnCpu(weight), OnCpu(bias), OnCpu(running_mean),
                            OnCpu(running_var), training, momentum, eps);
  const c10::Device device = input.device();
  return {OnDevice(output, device), OnDevice(mean, device), OnDevice(inverse, device)};
}

// True for operations whose results are values on the host.
bool Waits(const std::string& operation) {
  return operation == "aten::_local_scalar_dense" || operation == "aten::nonzero" ||
         operation == "aten::equal" || operation == "aten::masked_select" ||
         operation == "aten::_unique2";
}

void OnCopies(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  TORCH_CHECK(forbids_waiting == 0 || on_copies || !Waits(operation.schema().name()),
              "the host waits: ", operation.schema().name());
  const bool outer = std::exchange(on_copies, true);
  try {
    at::native::cpu_fallback(operation, stack);
  } catch (...) {
    on_copies = outer;
    throw;
  }
  on_copies = outer;
}

void RegisterKernels() {
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__,
                             __LINE__);
  aten.impl("empty.memory_format", &Empty);
  aten.impl("empty_strided", &EmptyStrided);
  aten.impl("_copy_from", &CopyFrom);
  aten.impl("_copy_from_and_resize", &CopyFromAndResize);
  aten.impl("resize_", &Resize);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("set_.source_Storage", &at::native::set_);
  aten.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  aten.impl("convolution_overrideable", &Convolution);
  aten.impl("convolution_backward_overrideable", &ConvolutionBackward);
  aten.impl("native_batch_norm", &BatchNorm);
  static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::HPU, __FILE__,
                               __LINE__);
  others.fallback(torch::CppFunction::makeFromBoxedFunction<&OnCopies>());
}

}  // namespace
}  // namespace muster::device

namespace at {
using muster::device::HPUHooks;
REGISTER_HPU_HOOKS(HPUHooks)
}  // namespace at

namespace muster::device {
namespace {

// The registration happens at load time, because autograd counts the devices before the first
// backward pass of a process.
const bool registered = [] {
  c10::SetAllocator(kType, MemoryOf({}));
  static const Guard guard;
  const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  RegisterKernels();
  return true;
}();

}  // namespace

NoWaiting::NoWaiting() { ++forbids_waiting; }
NoWaiting::~NoWaiting() { --forbids_waiting; }

int64_t StandInAllocations() { return allocations; }

c10::Device StandInDevice(c10::DeviceIndex index) {
  TORCH_CHECK(registered, "called before the program was loaded");
  return MemoryOf(c10::Device(kType, index))->device;
}

}  // namespace muster::device
