// Runs a TorchScript program that uses operators of a library, without Python in the process.
//
//   cpp_consumer LIBRARY PROGRAM N K
//
// The program gets N points on a spiral, and K; what it returns is printed, one row a line. Exit status 2 tells that
// the library could not be opened, 3 that Python has come into the process.
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <dlfcn.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: cpp_consumer LIBRARY PROGRAM N K\n";
    return 1;
  }
  // The operators are registered while the library is opened; it finds libtorch, which this program has loaded.
  if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::cerr << dlerror() << '\n';
    return 2;
  }
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) {
    std::cerr << "there is a Python in this process\n";
    return 3;
  }
  try {
    torch::jit::Module program = torch::jit::load(argv[2]);
    const at::Tensor t = at::arange(std::atoi(argv[3]), at::kFloat).div(8);
    const at::Tensor points = at::stack({t.cos().mul(t), t.sin().mul(t), t}, 1);
    const at::Tensor result = program.forward({points, std::int64_t{std::atoi(argv[4])}}).toTensor();
    for (std::int64_t row = 0; row < result.size(0); ++row) {
      for (std::int64_t column = 0; column < result.size(1); ++column) {
        std::cout << (column == 0 ? "" : " ") << result[row][column].item<double>();
      }
      std::cout << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 4;
  }
  return 0;
}
