#include <stdexcept>

namespace {
struct Two {
  int value;
};
}  // namespace

int two(int value) {
  if (value < 0) throw std::runtime_error(__FILE__ " of " __DATE__ " " __TIME__);
  return Two{value}.value * 2;
}
