// A CUDA device for PyTorch builds without CUDA, as far as tracing fake tensors needs one: there is
// one device, and its guards, streams and events do nothing.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr c10::DeviceType cuda = c10::DeviceType::CUDA;

struct CUDAHooks : at::CUDAHooksInterface {  // PyTorch looks for hooks of this name
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

struct Guard : c10::impl::NoOpDeviceGuardImpl<cuda> {
  c10::Device getDevice() const override { return {cuda, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return {cuda, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, {cuda, 0});
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream({cuda, 0}); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

Guard guard;
c10::impl::DeviceGuardImplRegistrar registered(cuda, &guard);

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}
