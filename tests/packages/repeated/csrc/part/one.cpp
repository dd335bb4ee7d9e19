#include <cassert>

static int seen = 0;

int one(int value) {
  assert(value > 0 && __FILE__);
  return value + ++seen;
}
