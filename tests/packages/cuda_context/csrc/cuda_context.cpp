// ATen/cuda/CUDAContext.h includes the headers of cuBLAS, cuSPARSE and cuSOLVER.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <torch/library.h>

bool has_blas() { return at::cuda::getCurrentCUDABlasHandle() != nullptr; }

int64_t offset(const at::Generator& generator) {
  return static_cast<int64_t>(at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_offset_per_thread());
}

TORCH_LIBRARY(torch_ext_context, library) {
  library.def("has_blas", &has_blas);
  library.def("offset", &offset);
}
