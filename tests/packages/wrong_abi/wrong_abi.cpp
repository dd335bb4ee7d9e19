// What every TORCH_CHECK with a message calls, declared by hand: compiling torch's headers shows nothing more.
// The definition is a copy from the time of the old C++ ABI; one on the command line would not hold.
#undef _GLIBCXX_USE_CXX11_ABI
#define _GLIBCXX_USE_CXX11_ABI 0
#include <cstdint>
#include <string>

namespace c10::detail {
[[noreturn]] void torchCheckFail(const char* func, const char* file, uint32_t line, const std::string& msg);
}

extern "C" void fails() { c10::detail::torchCheckFail("fails", "wrong_abi.cpp", 1, std::string("no")); }
