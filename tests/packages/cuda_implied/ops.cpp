#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
int toolkit() { return CUDART_VERSION; }
#endif
