// LibTorch's operators for tensors on a simulated GPU: each is the CPU's, on a view of the same memory. What
// they return is copied to the GPU, or is the argument that they wrote to.
#include <cstring>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "simulated_gpu/backend.h"
#include "simulated_gpu/simulated_gpu.h"

namespace simulated {
namespace {

using Stack = torch::jit::Stack;

at::Tensor make_tensor(c10::DataPtr data, std::size_t bytes, c10::Allocator& allocator, c10::DispatchKey key,
                       const at::Tensor& like) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       std::move(data), &allocator, /*resizable=*/true);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                             c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

/// The same numbers for operators of the CPU.
at::Tensor host_view(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  void* const data = to_host(tensor.storage().data());
  return make_tensor({data, c10::Device(c10::kCPU)}, tensor.storage().nbytes(), *c10::GetCPUAllocator(),
                     c10::DispatchKey::CPU, tensor);
}

at::Tensor copy_to_gpu(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const std::size_t bytes = tensor.storage().nbytes();
  c10::DataPtr data = device_allocator().allocate(bytes);
  if (bytes > 0) std::memcpy(to_host(data.get()), tensor.storage().data(), bytes);
  return make_tensor(std::move(data), bytes, device_allocator(), c10::DispatchKey::CUDA, tensor);
}

/// Operators that take tensors of both kinds on GPUs too.
bool takes_both(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::_to_copy" || name == "aten::index" || name == "aten::_index_put_impl_";
}

/// Calls use(tensor) for all in an argument and puts what it returns in their places.
template <class Use>
void replace_tensors(c10::IValue& value, const Use& use) {
  if (value.isTensor()) {
    value = use(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(use(tensor));
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec())
      list.push_back(tensor ? std::optional<at::Tensor>(use(*tensor)) : std::nullopt);
    value = list;
  }
}

/// Where an operator runs, and whether all its arguments are there.
class Place {
 public:
  void see(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (!tensor.is_cuda()) {
      on_host_ = on_host_ || tensor.dim() > 0;  // single numbers go along
      return;
    }
    TORCH_CHECK(!gpu_ || *gpu_ == tensor.device(), "simulated GPU: tensors on two GPUs");
    gpu_ = tensor.device();
  }
  void see(c10::Device device) {
    if (device.is_cuda()) gpu_ = device.has_index() ? device : c10::Device(c10::kCUDA, 0);
  }
  const std::optional<c10::Device>& gpu() const { return gpu_; }
  bool is_mixed() const { return gpu_ && on_host_; }

 private:
  std::optional<c10::Device> gpu_;
  bool on_host_ = false;
};

/// `view` is what an operator made of the view of `tensor`: it may have given it another size.
void follow(const at::Tensor& tensor, const at::Tensor& view) {
  if (!tensor.is_cuda() || view.sizes() == tensor.sizes()) return;
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(copy_to_gpu(view).storage());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
}

/// The argument that a result stands for.
const at::Tensor& written_argument(const c10::FunctionSchema& schema, const c10::AliasInfo& result,
                                   const std::vector<c10::IValue>& given,
                                   const std::vector<c10::IValue>& views) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const c10::AliasInfo* const own = schema.arguments()[i].alias_info();
    if (own == nullptr || own->afterSets() != result.afterSets()) continue;
    follow(given[i].toTensor(), views[i].toTensor());
    return given[i].toTensor();
  }
  TORCH_CHECK(false, "simulated GPU: ", schema.name(), " returns no argument of its own");
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto arguments = static_cast<std::ptrdiff_t>(schema.arguments().size());
  const std::vector<c10::IValue> given(stack->end() - arguments, stack->end());
  Place place;
  for (auto value = stack->end() - arguments; value != stack->end(); ++value) {
    replace_tensors(*value, [&](const at::Tensor& tensor) {
      place.see(tensor);
      return host_view(tensor);
    });
    if (!value->isDevice()) continue;
    place.see(value->toDevice());
    if (value->toDevice().is_cuda()) *value = c10::Device(c10::kCPU);
  }
  const std::vector<c10::IValue> views(stack->end() - arguments, stack->end());
  TORCH_CHECK(!place.is_mixed() || takes_both(op), "simulated GPU: ", schema.name(),
              ": tensors on the CPU and on a GPU");
  const c10::OptionalDeviceGuard on(place.gpu());
  wait_for_current_stream();
  op.callBoxed(stack);
  const auto results = static_cast<std::ptrdiff_t>(schema.returns().size());
  for (std::ptrdiff_t r = 0; r < results; ++r) {
    c10::IValue& value = *(stack->end() - results + r);
    const c10::AliasInfo* const alias = schema.returns()[static_cast<std::size_t>(r)].alias_info();
    TORCH_CHECK(alias == nullptr || alias->isWrite(), "simulated GPU: ", schema.name(), " returns a view");
    if (alias != nullptr)
      value = written_argument(schema, *alias, given, views);
    else if (place.gpu())
      replace_tensors(value, copy_to_gpu);
  }
}

at::Tensor make_empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                      std::optional<at::Device> device, std::optional<bool>,
                      std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_generic(size, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(type), format);
}

at::Tensor make_empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                              std::optional<at::ScalarType> type, std::optional<at::Layout>,
                              std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_strided_generic(size, stride, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(type));
}

at::Tensor view_strided(const at::Tensor& tensor, c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<std::int64_t> offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset.value_or(tensor.storage_offset()));
  return view;
}

at::Tensor view_sized(const at::Tensor& tensor, c10::IntArrayRef size) {
  const at::Tensor like = host_view(tensor).view(size);
  return view_strided(tensor, like.sizes(), like.strides(), like.storage_offset());
}

at::Tensor view_aliased(const at::Tensor& tensor, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return view_strided(tensor, size, stride, {});
}

at::Tensor view_unfolded(const at::Tensor& tensor, std::int64_t dim, std::int64_t size, std::int64_t step) {
  const at::Tensor like = host_view(tensor).unfold(dim, size, step);
  return view_strided(tensor, like.sizes(), like.strides(), like.storage_offset());
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool /*non_blocking*/) {
  wait_for_current_stream();
  host_view(to).copy_(host_view(from));
  return to;
}

/// Products that the CPU has not, in `type`; as cuBLAS takes them.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  const c10::DeviceGuard on(a.device());
  TORCH_CHECK(a.device() == b.device() && a.scalar_type() == b.scalar_type() && type == at::kFloat &&
                  (a.scalar_type() == at::kBFloat16 || a.scalar_type() == at::kHalf),
              "simulated GPU: no such product");
  wait_for_current_stream();
  return copy_to_gpu(at::matmul(host_view(a).to(type), host_view(b).to(type)));
}

at::Tensor integer_product(const at::Tensor& a, const at::Tensor& b) {
  const c10::DeviceGuard on(a.device());
  TORCH_CHECK(a.device() == b.device() && a.scalar_type() == at::kChar && b.scalar_type() == at::kChar &&
                  a.size(0) > 16 && a.size(1) > 0 && a.size(1) % 8 == 0 && b.size(1) > 0 &&
                  b.size(1) % 8 == 0 && a.stride(1) == 1 && b.stride(0) == 1,
              "simulated GPU: no product in integers for these");
  wait_for_current_stream();
  return copy_to_gpu(at::mm(host_view(a).to(at::kDouble), host_view(b).to(at::kDouble)).to(at::kInt));
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &make_empty);
  library.impl("empty_strided", &make_empty_strided);
  library.impl("as_strided", &view_strided);
  library.impl("view", &view_sized);
  library.impl("_reshape_alias", &view_aliased);
  library.impl("unfold", &view_unfolded);
  library.impl("copy_", &copy);
  library.impl("mm.dtype", &wide_product);
  library.impl("bmm.dtype", &wide_product);
  library.impl("_int_mm", &integer_product);
}

}  // namespace
}  // namespace simulated
