// A call, a class whose tables torch's library holds, an exception of torch's: code, data and type information from there.
#include <c10/util/Exception.h>

#include <cstdio>

extern "C" const char* light_where();

int main() {
  try {
    TORCH_CHECK(light_where() == nullptr, "reached torch");
  } catch (const c10::Error& error) {
    std::puts(error.what_without_backtrace());
  }
  return 0;
}
