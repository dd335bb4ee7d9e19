// CUDA kernels. No torch headers: this file, the slowest to compile, gives the same object for every release of torch.
#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace torch_ext_example {
namespace {

using std::int64_t;
using std::size_t;
using std::uint32_t;
using std::uint64_t;

constexpr int kWarp = 32;
constexpr uint32_t kNone = 0xffffffffu;

void check(cudaError_t code) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string("torch_ext_example: CUDA error: ") + cudaGetErrorString(code));
  }
}

// What is computed in, and read from memory as, each element type.
__device__ float widen(float value) { return value; }
__device__ double widen(double value) { return value; }
__device__ float widen(__half value) { return __half2float(value); }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void narrow(float value, float* out) { *out = value; }
__device__ void narrow(double value, double* out) { *out = value; }
__device__ void narrow(float value, __half* out) { *out = __float2half_rn(value); }
__device__ void narrow(float value, __nv_bfloat16* out) { *out = __float2bfloat16_rn(value); }

template <typename T>
struct Compute {
  using type = float;
  using key = uint32_t;
};
template <>
struct Compute<double> {
  using type = double;
  using key = uint64_t;
};

// ---------------------------------------------------------------------------------------------------------------------
// The farthest point of a group of blocks.
//
// A distance becomes an unsigned key of the same order that leaves the top bit free: 0 for the -1 of a point that is
// never picked, else the bits of the float plus one.

__device__ uint32_t to_key(float distance) { return distance < 0 ? 0u : __float_as_uint(distance) + 1u; }
__device__ uint64_t to_key(double distance) {
  return distance < 0 ? 0ull : static_cast<uint64_t>(__double_as_longlong(distance)) + 1ull;
}

template <typename Key>
struct Best {
  Key key = 0;
  uint32_t index = kNone;

  __device__ void merge(Key other_key, uint32_t other_index) {
    if (other_key > key || (other_key == key && other_index < index)) {
      key = other_key;
      index = other_index;
    }
  }
};

template <typename Key>
__device__ Best<Key> warp_best(Best<Key> best) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Key key = __shfl_xor_sync(kNone, best.key, offset);
    best.merge(key, __shfl_xor_sync(kNone, best.index, offset));
  }
  return best;
}

#if __CUDA_ARCH__ >= 800  // two instructions instead of ten
__device__ Best<uint32_t> warp_best(Best<uint32_t> best) {
  const uint32_t key = __reduce_max_sync(kNone, best.key);
  return {key, __reduce_min_sync(kNone, best.key == key ? best.index : kNone)};
}
#endif

// One 64-bit word for a float's candidate, two for a double's. The top bit of each is the phase: a reader knows by it
// that the word was written in this round, so a word needs no flag, no fence and no clearing between rounds.
__device__ void publish(volatile uint64_t* slot, uint64_t phase, Best<uint32_t> best) {
  slot[0] = phase << 63 | static_cast<uint64_t>(best.key) << 32 | best.index;
}
__device__ void publish(volatile uint64_t* slot, uint64_t phase, Best<uint64_t> best) {
  slot[0] = phase << 63 | best.key;
  slot[1] = phase << 63 | best.index;
}
__device__ uint64_t await(volatile const uint64_t* word, uint64_t phase) {
  uint64_t value = *word;
  while (value >> 63 != phase) {
    value = *word;
  }
  return value & ~(1ull << 63);
}
__device__ void receive(volatile const uint64_t* slot, uint64_t phase, Best<uint32_t>* best) {
  const uint64_t word = await(slot, phase);
  best->merge(static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word));
}
__device__ void receive(volatile const uint64_t* slot, uint64_t phase, Best<uint64_t>* best) {
  const uint64_t key = await(slot, phase);
  best->merge(key, static_cast<uint32_t>(await(slot + 1, phase)));
}
template <typename Key>
constexpr int kWords = sizeof(Key) / 4;

// The blocks that share one item of the batch. `slots` is zeroed before the kernel: 2 * size slots for each group.
template <typename Key>
class Group {
 public:
  __device__ Group(int size, uint64_t* slots)
      : size_(size), rank_(blockIdx.x % size), slots_(slots + int64_t{blockIdx.x / size} * 2 * size * kWords<Key>) {}

  __device__ int size() const { return size_; }
  __device__ int rank() const { return rank_; }

  // Called by every thread of every block of the group; all get the index of the best candidate.
  __device__ uint32_t farthest(Best<Key> best) {
    __shared__ Best<Key> warps[2][kWarp];  // two, so that one barrier a round is enough
    __shared__ uint32_t winner[2];
    const int lane = threadIdx.x % kWarp;
    const int half = round_ % 2;
    best = warp_best(best);
    if (lane == 0) {
      warps[half][threadIdx.x / kWarp] = best;
    }
    __syncthreads();
    if (size_ == 1) {
      ++round_;
      return block_best(warps[half], lane).index;
    }
    if (threadIdx.x < kWarp) {
      best = block_best(warps[half], lane);
      const uint64_t phase = (round_ / 2 + 1) % 2;
      volatile uint64_t* round_slots = slots_ + int64_t{half} * size_ * kWords<Key>;
      if (lane == 0) {
        publish(round_slots + rank_ * kWords<Key>, phase, best);
      }
      // A block comes to write a slot again two rounds later, when all others have shown that they have read it.
      for (int other = lane; other < size_; other += kWarp) {
        receive(round_slots + other * kWords<Key>, phase, &best);
      }
      best = warp_best(best);
      if (lane == 0) {
        winner[half] = best.index;
      }
    }
    __syncthreads();
    ++round_;
    return winner[half];
  }

 private:
  __device__ static Best<Key> block_best(const Best<Key>* warps, int lane) {
    return warp_best(lane < blockDim.x / kWarp ? warps[lane] : Best<Key>{});
  }

  int size_, rank_;
  uint64_t* slots_;
  uint32_t round_ = 0;
};

// The picked point has come: the distance of each point to the nearest picked one, NaN taken for -1.
template <typename C>
__device__ C nearer(C nearest, C distance) {
  distance = distance >= 0 ? distance : C(-1);
  return distance < nearest ? distance : nearest;
}

template <typename T>
constexpr int kPointsPerThread = sizeof(T) == 8 ? 4 : 8;
constexpr int kMaxThreads = 1024;
constexpr int kMemoryThreads = 512;

// Points and distances stay in registers from the first pick to the last.
template <typename T, int D>
__global__ void __launch_bounds__(kMaxThreads)
    sample_in_registers(const T* __restrict__ points, int64_t batch, uint32_t n, int64_t k, int64_t* __restrict__ picks,
                        int group_size, uint64_t* slots) {
  using C = typename Compute<T>::type;
  constexpr int count = kPointsPerThread<T>;
  Group<typename Compute<T>::key> group(group_size, slots);
  const int64_t groups = gridDim.x / group_size;
  const uint32_t first = group.rank() * blockDim.x + threadIdx.x;
  const uint32_t stride = group_size * blockDim.x;
  for (int64_t item = blockIdx.x / group_size; item < batch; item += groups) {
    const T* base = points + item * n * D;
    C coordinates[count][D];
    C nearest[count];
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const uint32_t i = first + j * stride;
      nearest[j] = i < n ? C(INFINITY) : C(-1);
#pragma unroll
      for (int d = 0; d < D; ++d) {
        coordinates[j][d] = i < n ? C(widen(base[int64_t{i} * D + d])) : C(0);
      }
    }
    uint32_t picked = 0;
    for (int64_t pick = 0;; ++pick) {
      if (group.rank() == 0 && threadIdx.x == 0) {
        picks[item * k + pick] = picked;
      }
      if (pick == k - 1) {
        break;
      }
      C origin[D];
#pragma unroll
      for (int d = 0; d < D; ++d) {
        origin[d] = widen(base[int64_t{picked} * D + d]);
      }
      C largest = C(-2);
      uint32_t where = 0;
#pragma unroll
      for (int j = 0; j < count; ++j) {
        C distance = 0;
#pragma unroll
        for (int d = 0; d < D; ++d) {
          const C difference = coordinates[j][d] - origin[d];
          distance += difference * difference;
        }
        nearest[j] = nearer(nearest[j], distance);
        if (nearest[j] > largest) {  // strictly: the lowest index wins
          largest = nearest[j];
          where = first + j * stride;
        }
      }
      picked = group.farthest({to_key(largest), where});
    }
  }
}

// For any dimension and any number of points: these are read again for each pick, the distances kept in `memory`.
template <typename T>
__global__ void __launch_bounds__(kMemoryThreads)
    sample_in_memory(const T* __restrict__ points, int64_t batch, uint32_t n, int64_t dim, int64_t k,
                     int64_t* __restrict__ picks, int group_size, uint64_t* slots,
                     typename Compute<T>::type* __restrict__ memory) {
  using C = typename Compute<T>::type;
  Group<typename Compute<T>::key> group(group_size, slots);
  const int64_t groups = gridDim.x / group_size;
  C* nearest = memory + int64_t{blockIdx.x / group_size} * n;
  for (int64_t item = blockIdx.x / group_size; item < batch; item += groups) {
    const T* base = points + item * n * dim;
    uint32_t picked = 0;
    for (int64_t pick = 0;; ++pick) {
      if (group.rank() == 0 && threadIdx.x == 0) {
        picks[item * k + pick] = picked;
      }
      if (pick == k - 1) {
        break;
      }
      const T* origin = base + picked * dim;
      C largest = C(-2);
      uint32_t where = kNone;
      for (int64_t i = int64_t{group.rank()} * blockDim.x + threadIdx.x; i < n; i += int64_t{group_size} * blockDim.x) {
        C distance = 0;
        for (int64_t d = 0; d < dim; ++d) {
          const C difference = C(widen(base[i * dim + d])) - C(widen(origin[d]));
          distance += difference * difference;
        }
        const C now = nearer(pick == 0 ? C(INFINITY) : nearest[i], distance);
        nearest[i] = now;  // this thread alone reads it again
        if (now > largest) {
          largest = now;
          where = static_cast<uint32_t>(i);
        }
      }
      picked = group.farthest({to_key(largest), where});
    }
  }
}

// How a call is spread over the device: `groups` items at a time, each by `size` blocks of `threads`.
struct Plan {
  bool in_registers;
  int threads, size;
  int64_t groups;
  const void* kernel;

  size_t slot_bytes() const { return size == 1 ? 0 : static_cast<size_t>(groups) * size * 2 * 2 * sizeof(uint64_t); }
};

template <typename T>
const void* register_kernel(int64_t dim) {
  switch (dim) {
    case 1:
      return reinterpret_cast<const void*>(&sample_in_registers<T, 1>);
    case 2:
      return reinterpret_cast<const void*>(&sample_in_registers<T, 2>);
    case 3:
      return reinterpret_cast<const void*>(&sample_in_registers<T, 3>);
    case 4:
      return reinterpret_cast<const void*>(&sample_in_registers<T, 4>);
    default:
      return nullptr;
  }
}

int64_t resident_blocks(const void* kernel, int threads) {
  int device = 0, processors = 0, blocks = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0));
  return int64_t{processors} * blocks;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
Plan make_plan(int64_t batch, int64_t n, int64_t dim) {
  constexpr int64_t most_groups = 1 << 30;
  if (const void* kernel = register_kernel<T>(dim)) {
    const int64_t per_thread = kPointsPerThread<T>;
    int threads = kWarp;
    while (threads < kMaxThreads && threads * per_thread < n) {
      threads *= 2;
    }
    const int64_t size = std::max<int64_t>(1, ceil_div(n, threads * per_thread));
    if (size == 1) {
      return {true, threads, 1, std::min(batch, most_groups), kernel};
    }
    const int64_t resident = resident_blocks(kernel, threads);
    if (size <= resident) {
      return {true, threads, static_cast<int>(size), std::min(batch, resident / size), kernel};
    }
  }
  const void* kernel = reinterpret_cast<const void*>(&sample_in_memory<T>);
  const int threads = kMemoryThreads;
  const int64_t resident = resident_blocks(kernel, threads);
  const int64_t useful = ceil_div(n, threads * (dim < 16 ? 4 : 1));
  const int64_t size = std::max<int64_t>(1, std::min(useful, resident / std::min(batch, resident)));
  return {false, threads, static_cast<int>(size), std::min(batch, std::max<int64_t>(1, resident / size)), kernel};
}

template <typename T>
size_t workspace(const Plan& plan, int64_t n) {
  const size_t memory =
      plan.in_registers ? 0 : static_cast<size_t>(plan.groups) * n * sizeof(typename Compute<T>::type);
  return plan.slot_bytes() + memory;
}

template <typename T>
void sample(const Plan& plan, const void* points, int64_t batch, int64_t n, int64_t dim, int64_t k, int64_t* picks,
            void* workspace, cudaStream_t stream) {
  uint32_t count = static_cast<uint32_t>(n);
  int size = plan.size;
  void* slots = workspace;
  void* memory = static_cast<char*>(workspace) + plan.slot_bytes();
  void* in_registers[] = {&points, &batch, &count, &k, &picks, &size, &slots};
  void* in_memory[] = {&points, &batch, &count, &dim, &k, &picks, &size, &slots, &memory};
  void** arguments = plan.in_registers ? in_registers : in_memory;
  const dim3 grid(static_cast<unsigned>(plan.groups * plan.size));
  if (plan.size == 1) {
    check(cudaLaunchKernel(plan.kernel, grid, dim3(plan.threads), arguments, 0, stream));
  } else {  // blocks that wait for each other must all be on the device at once: the cooperative launch sees to it
    check(cudaMemsetAsync(slots, 0, plan.slot_bytes(), stream));
    check(cudaLaunchCooperativeKernel(plan.kernel, grid, dim3(plan.threads), arguments, 0, stream));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Squared distances: a block computes a tile of 64 by 64, a thread 4 by 4 of it, from slices of both sides.

constexpr int kTile = 64;
constexpr int kSlice = 16;
constexpr int kSide = 16;               // threads along each side of the tile
constexpr int kEach = kTile / kSide;

template <typename T, typename C>
__device__ void load_slice(const T* rows, int64_t first, int64_t count, int64_t dim, int64_t begin,
                           C (*slice)[kTile + 1]) {
  for (int i = threadIdx.x; i < kTile * kSlice; i += kSide * kSide) {
    const int row = i / kSlice, d = i % kSlice;
    const bool inside = first + row < count && begin + d < dim;
    slice[d][row] = inside ? C(widen(rows[(first + row) * dim + begin + d])) : C(0);
  }
}

template <typename T>
__global__ void __launch_bounds__(kSide* kSide)
    squared_distance_tiles(const T* __restrict__ a, const T* __restrict__ b, int64_t rows, int64_t columns, int64_t dim,
                           int64_t row_tiles, int64_t column_tiles, int64_t tiles, T* __restrict__ out) {
  using C = typename Compute<T>::type;
  __shared__ C left[kSlice][kTile + 1];
  __shared__ C right[kSlice][kTile + 1];
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t item = tile / (row_tiles * column_tiles);
    const int64_t row = tile / column_tiles % row_tiles * kTile;
    const int64_t column = tile % column_tiles * kTile;
    C sum[kEach][kEach] = {};
    for (int64_t begin = 0; begin < dim; begin += kSlice) {
      load_slice(a + item * rows * dim, row, rows, dim, begin, left);
      load_slice(b + item * columns * dim, column, columns, dim, begin, right);
      __syncthreads();
      const int depth = static_cast<int>(dim - begin < kSlice ? dim - begin : kSlice);
      for (int d = 0; d < depth; ++d) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) {
            const C difference = left[d][y + i * kSide] - right[d][x + j * kSide];
            sum[i][j] += difference * difference;
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t r = row + y + i * kSide, c = column + x + j * kSide;
        if (r < rows && c < columns) {
          narrow(sum[i][j], out + (item * rows + r) * columns + c);
        }
      }
    }
  }
}

template <typename T>
void distances(const void* a, const void* b, int64_t batch, int64_t rows, int64_t columns, int64_t dim, void* out,
               cudaStream_t stream) {
  int64_t row_tiles = ceil_div(rows, kTile), column_tiles = ceil_div(columns, kTile);
  int64_t tiles = batch * row_tiles * column_tiles;
  void* arguments[] = {&a, &b, &rows, &columns, &dim, &row_tiles, &column_tiles, &tiles, &out};
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(tiles, 1 << 30)));
  check(cudaLaunchKernel(reinterpret_cast<const void*>(&squared_distance_tiles<T>), grid, dim3(kSide * kSide),
                         arguments, 0, stream));
}

// Calls `body` with a null pointer of the element's type.
template <typename Body>
auto dispatch(Element element, Body body) {
  switch (element) {
    case Element::f64:
      return body(static_cast<double*>(nullptr));
    case Element::f16:
      return body(static_cast<__half*>(nullptr));
    case Element::bf16:
      return body(static_cast<__nv_bfloat16*>(nullptr));
    default:
      return body(static_cast<float*>(nullptr));
  }
}

}  // namespace

size_t farthest_point_sampling_workspace(Element element, int64_t batch, int64_t n, int64_t dim) {
  if (batch == 0 || n == 0) {
    return 0;
  }
  return dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    return workspace<T>(make_plan<T>(batch, n, dim), n);
  });
}

void farthest_point_sampling_cuda(Element element, const void* points, int64_t batch, int64_t n, int64_t dim, int64_t k,
                                  int64_t* picks, void* workspace, void* stream) {
  if (batch == 0 || k == 0) {
    return;
  }
  dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    sample<T>(make_plan<T>(batch, n, dim), points, batch, n, dim, k, picks, workspace,
              static_cast<cudaStream_t>(stream));
  });
}

void squared_distance_cuda(Element element, const void* a, const void* b, int64_t batch, int64_t rows, int64_t columns,
                           int64_t dim, void* out, void* stream) {
  if (batch == 0 || rows == 0 || columns == 0) {
    return;
  }
  dispatch(element, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    distances<T>(a, b, batch, rows, columns, dim, out, static_cast<cudaStream_t>(stream));
  });
}

}  // namespace torch_ext_example
