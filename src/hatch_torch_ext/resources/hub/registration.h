// Registers operators under a name that the finished library can be given: one for the users of the wheel, and one of
// its own for each build on Hugging Face's Hub, where several versions are loaded into one process. From
// hatch-torch-ext, and yours from now on.
//
// Include it after <torch/library.h> or <torch/csrc/stable/library.h>. NAME may be a macro.
#pragma once

#include <string>

#define TORCH_EXT_JOIN_(A, B) A##B
#define TORCH_EXT_JOIN(A, B) TORCH_EXT_JOIN_(A, B)
#define TORCH_EXT_QUOTE_(A) #A
#define TORCH_EXT_QUOTE(A) TORCH_EXT_QUOTE_(A)

// The name is in a field of 128 bytes, into which `hatch-torch-ext kernels` writes another one. It is volatile, so that
// no compiler copies the name to other places.
#define TORCH_EXT_NAME(NAME)                                                                       \
  ([]() -> const char* {                                                                           \
    static const volatile char field[128] = "TORCH_EXT_NAMESPACE=" TORCH_EXT_QUOTE(NAME);          \
    static const std::string name = [] {                                                           \
      std::string text;                                                                            \
      for (const volatile char* at = field + sizeof("TORCH_EXT_NAMESPACE=") - 1; *at != 0; ++at) { \
        text.push_back(*at);                                                                       \
      }                                                                                            \
      return text;                                                                                 \
    }();                                                                                           \
    return name.c_str();                                                                           \
  }())

#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_EXT_DEFINE(TORCH_LIBRARY, NAME, MODULE)
#define TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) TORCH_EXT_FRAGMENT(NAME, MODULE, __COUNTER__)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) TORCH_EXT_IMPL(NAME, DEVICE, MODULE, __COUNTER__)

// The functions have the names that torch's own macros give them, by which tools find the namespace.
#define TORCH_EXT_DEFINE(KIND, NAME, MODULE)                                                            \
  static void TORCH_EXT_JOIN(KIND##_init_, NAME)(torch::Library&);                                      \
  static const torch::detail::TorchLibraryInit TORCH_EXT_JOIN(KIND##_static_init_, NAME)(               \
      torch::Library::DEF, &TORCH_EXT_JOIN(KIND##_init_, NAME), TORCH_EXT_NAME(NAME), {}, __FILE__, __LINE__); \
  void TORCH_EXT_JOIN(KIND##_init_, NAME)(torch::Library & MODULE)
#define TORCH_EXT_FRAGMENT(NAME, MODULE, ID) TORCH_EXT_FRAGMENT_(NAME, MODULE, ID)
#define TORCH_EXT_FRAGMENT_(NAME, MODULE, ID)                                                      \
  static void TORCH_LIBRARY_FRAGMENT_init_##NAME##_##ID(torch::Library&);                          \
  static const torch::detail::TorchLibraryInit TORCH_LIBRARY_FRAGMENT_static_init_##NAME##_##ID(   \
      torch::Library::FRAGMENT, &TORCH_LIBRARY_FRAGMENT_init_##NAME##_##ID, TORCH_EXT_NAME(NAME),  \
      {}, __FILE__, __LINE__);                                                                     \
  void TORCH_LIBRARY_FRAGMENT_init_##NAME##_##ID(torch::Library& MODULE)
#define TORCH_EXT_IMPL(NAME, DEVICE, MODULE, ID) TORCH_EXT_IMPL_(NAME, DEVICE, MODULE, ID)
#define TORCH_EXT_IMPL_(NAME, DEVICE, MODULE, ID)                                                          \
  static void TORCH_LIBRARY_IMPL_init_##NAME##_##DEVICE##_##ID(torch::Library&);                           \
  static const torch::detail::TorchLibraryInit TORCH_LIBRARY_IMPL_static_init_##NAME##_##DEVICE##_##ID(    \
      torch::Library::IMPL, &TORCH_LIBRARY_IMPL_init_##NAME##_##DEVICE##_##ID, TORCH_EXT_NAME(NAME),       \
      c10::DispatchKey::DEVICE, __FILE__, __LINE__);                                                       \
  void TORCH_LIBRARY_IMPL_init_##NAME##_##DEVICE##_##ID(torch::Library& MODULE)

// The same on torch's stable ABI.
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_EXT_STABLE(DEF, , NAME, nullptr, MODULE)
#define STABLE_TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) \
  TORCH_EXT_STABLE(FRAGMENT, TORCH_EXT_JOIN(_, __COUNTER__), NAME, nullptr, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  TORCH_EXT_STABLE(IMPL, TORCH_EXT_JOIN(_##DEVICE##_, __COUNTER__), NAME, #DEVICE, MODULE)
#define TORCH_EXT_STABLE(KIND, ID, NAME, DEVICE, MODULE) TORCH_EXT_STABLE_##KIND(NAME, ID, DEVICE, MODULE)
#define TORCH_EXT_STABLE_DEF(NAME, ID, DEVICE, MODULE) \
  TORCH_EXT_STABLE_(DEF, STABLE_TORCH_LIBRARY_, NAME, ID, DEVICE, MODULE)
#define TORCH_EXT_STABLE_FRAGMENT(NAME, ID, DEVICE, MODULE) \
  TORCH_EXT_STABLE_(FRAGMENT, STABLE_TORCH_LIBRARY_FRAGMENT_, NAME, ID, DEVICE, MODULE)
#define TORCH_EXT_STABLE_IMPL(NAME, ID, DEVICE, MODULE) \
  TORCH_EXT_STABLE_(IMPL, STABLE_TORCH_LIBRARY_IMPL_, NAME, ID, DEVICE, MODULE)
#define TORCH_EXT_STABLE_(KIND, STEM, NAME, ID, DEVICE, MODULE)                                     \
  static void STEM##init_##NAME##ID(torch::stable::detail::StableLibrary&);                         \
  static const torch::stable::detail::StableTorchLibraryInit STEM##static_init_##NAME##ID(          \
      torch::stable::detail::StableLibrary::Kind::KIND, &STEM##init_##NAME##ID, TORCH_EXT_NAME(NAME), \
      DEVICE, __FILE__, __LINE__);                                                                  \
  void STEM##init_##NAME##ID(torch::stable::detail::StableLibrary& MODULE)

// kernel-builder's sources make a Python module of the library by this; ours is opened by the package's loader, and
// needs no Python.
#define REGISTER_EXTENSION(NAME)
#ifndef CONCAT
#define CONCAT(A, B) TORCH_EXT_JOIN(A, B)
#endif
#ifndef STRINGIFY
#define STRINGIFY(A) TORCH_EXT_QUOTE(A)
#endif
