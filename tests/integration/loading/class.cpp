// A class that no TORCH_LIBRARY registers: only its own name tells two of them apart.
#include <torch/custom_class.h>

namespace {

struct Box : torch::CustomClassHolder {
  int64_t value;
  explicit Box(int64_t start) : value(start) {}
};

const auto registered = torch::class_<Box>("loading_classes", "Box").def(torch::init<int64_t>());

}  // namespace
