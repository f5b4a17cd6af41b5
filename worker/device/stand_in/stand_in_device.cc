#include "worker/device/stand_in/stand_in_device.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
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
#include "ATen/ops/from_blob.h"
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

// Devices with one stream each, on which everything is done at once.
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
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
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

// The same memory as a tensor on the CPU.
at::Tensor OnCpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  // data_ptr() of an empty storage is null, which from_blob allows for tensors without elements.
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(c10::kCPU).requires_grad(false));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
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

void OnCopies(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
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

// Autograd counts the devices before the first backward pass of a process.
const bool registered = [] {
  c10::SetAllocator(kType, MemoryOf({}));
  static const Guard guard;
  const c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  RegisterKernels();
  return true;
}();

}  // namespace

int64_t StandInAllocations() { return allocations; }

c10::Device StandInDevice(c10::DeviceIndex index) {
  TORCH_CHECK(registered, "called before the program was loaded");
  return MemoryOf(c10::Device(kType, index))->device;
}

}  // namespace muster::device
