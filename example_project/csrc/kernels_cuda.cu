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
// not to be picked, else the bits of the float plus one.

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
    best = block_best(best);
    if (size_ > 1) {
      const uint64_t phase = (round_ / 2 + 1) % 2;
      volatile uint64_t* slots = slots_ + int64_t{round_ % 2} * size_ * kWords<Key>;
      ++round_;
      if (threadIdx.x == 0) {
        publish(slots + rank_ * kWords<Key>, phase, best);
      }
      // A block comes to write a slot again two rounds later, when all others have shown that they have read it.
      for (int other = threadIdx.x; other < size_; other += blockDim.x) {
        receive(slots + other * kWords<Key>, phase, &best);
      }
      best = block_best(best);
    }
    return best.index;
  }

 private:
  __device__ Best<Key> block_best(Best<Key> best) {
    __shared__ Best<Key> warps[2][kWarp];  // two, used in turn, so that one barrier is enough
    Best<Key>* const here = warps[turn_];
    turn_ ^= 1;
    const int lane = threadIdx.x % kWarp;
    best = warp_best(best);
    if (lane == 0) {
      here[threadIdx.x / kWarp] = best;
    }
    __syncthreads();
    return warp_best(lane < blockDim.x / kWarp ? here[lane] : Best<Key>{});
  }

  int size_, rank_;
  uint64_t* slots_;
  uint32_t round_ = 0;
  int turn_ = 0;
};

template <typename T>
constexpr int kPointsPerThread = sizeof(T) == 8 ? 4 : 8;
constexpr int kMaxThreads = 1024;
constexpr int kAtOnce = 4;  // points that a thread has in flight where they are read from memory

__device__ float smaller(float a, float b) { return fminf(a, b); }  // of a number and NaN, the number
__device__ double smaller(double a, double b) { return fmin(a, b); }

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
        nearest[j] = isfinite(coordinates[j][d]) ? nearest[j] : C(-1);
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
        nearest[j] = smaller(nearest[j], distance);
        if (nearest[j] > largest) {  // strictly: the lowest index wins
          largest = nearest[j];
          where = first + j * stride;
        }
      }
      picked = group.farthest({to_key(largest), where});
    }
  }
}

// Brings `Count` points, `stride` apart, up to date with the point picked last, and keeps the farthest.
template <int Count, typename T, typename C>
__device__ void advance(const T* columns, const T* origin, int64_t n, int64_t dim, int64_t i, int64_t stride,
                        C* nearest, C* largest, uint32_t* where) {
  C distance[Count] = {};
#pragma unroll 8
  for (int64_t d = 0; d < dim; ++d) {
    const C from = widen(origin[d]);
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      const C difference = C(widen(columns[d * n + i + j * stride])) - from;
      distance[j] += difference * difference;
    }
  }
#pragma unroll
  for (int j = 0; j < Count; ++j) {
    const C now = smaller(nearest[i + j * stride], distance[j]);
    nearest[i + j * stride] = now;
    if (now > *largest) {
      *largest = now;
      *where = static_cast<uint32_t>(i + j * stride);
    }
  }
}

// For any dimension and any number of points: they are read again for each pick, from a copy that has one dimension after
// the other, so that neighbouring threads read neighbouring memory.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    sample_in_memory(const T* __restrict__ points, int64_t batch, uint32_t n, int64_t dim, int64_t k,
                     int64_t* __restrict__ picks, int group_size, uint64_t* slots,
                     typename Compute<T>::type* __restrict__ all_nearest, T* __restrict__ all_columns) {
  using C = typename Compute<T>::type;
  Group<typename Compute<T>::key> group(group_size, slots);
  const int64_t groups = gridDim.x / group_size;
  const int64_t first = int64_t{group.rank()} * blockDim.x + threadIdx.x;
  const int64_t stride = int64_t{group_size} * blockDim.x;
  C* nearest = all_nearest + int64_t{blockIdx.x / group_size} * n;
  T* columns = all_columns + int64_t{blockIdx.x / group_size} * n * dim;
  for (int64_t item = blockIdx.x / group_size; item < batch; item += groups) {
    const T* base = points + item * n * dim;
    for (int64_t i = first; i < n; i += stride) {  // a thread reads back only what it wrote itself
      C start = C(INFINITY);
      for (int64_t d = 0; d < dim; ++d) {
        const T coordinate = base[i * dim + d];
        columns[d * n + i] = coordinate;
        start = isfinite(widen(coordinate)) ? start : C(-1);
      }
      nearest[i] = start;
    }
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
      int64_t i = first;
      for (; i + (kAtOnce - 1) * stride < n; i += kAtOnce * stride) {
        advance<kAtOnce>(columns, origin, n, dim, i, stride, nearest, &largest, &where);
      }
      for (; i < n; i += stride) {
        advance<1>(columns, origin, n, dim, i, stride, nearest, &largest, &where);
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
const void* memory_kernel() {
  return reinterpret_cast<const void*>(&sample_in_memory<T>);
}

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

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An item gets a block for itself where that is enough, else as many small blocks as there are processors for it.
template <typename T>
Plan make_plan(int64_t batch, int64_t n, int64_t dim) {
  const void* kernel = register_kernel<T>(dim);
  const bool in_registers = kernel != nullptr;
  const int64_t per_thread = in_registers ? kPointsPerThread<T> : 1;
  int threads = kWarp;
  while (threads < kMaxThreads && threads * per_thread < n) {
    threads *= 2;
  }
  if (threads * per_thread >= n) {
    // Each block of the second kind has a copy of its item: not one for every item of a large batch.
    const int64_t most = in_registers ? 1 << 30 : 4096;
    return {in_registers, threads, 1, std::min(batch, most), in_registers ? kernel : memory_kernel<T>()};
  }
  int device = 0, processors = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const int64_t share = std::max<int64_t>(1, processors / batch);
  const int64_t few = in_registers ? std::min<int64_t>(share, 64) : share;  // more only wait longer for each other
  threads = in_registers ? 256 : 128;
  while (threads < kMaxThreads && ceil_div(n, threads * per_thread) > few) {
    threads *= 2;
  }
  const int64_t wanted = ceil_div(n, threads * per_thread);
  if (in_registers && wanted <= processors) {
    return {true, threads, static_cast<int>(wanted), std::min(batch, processors / wanted), kernel};
  }
  const int64_t size = std::min(wanted, share);
  return {false, threads, static_cast<int>(size), std::min(batch, processors / size), memory_kernel<T>()};
}

template <typename T>
size_t nearest_bytes(const Plan& plan, int64_t n) {
  return plan.in_registers ? 0 : static_cast<size_t>(plan.groups) * n * sizeof(typename Compute<T>::type);
}

template <typename T>
size_t workspace(const Plan& plan, int64_t n, int64_t dim) {
  const size_t columns = plan.in_registers ? 0 : static_cast<size_t>(plan.groups) * n * dim * sizeof(T);
  return plan.slot_bytes() + nearest_bytes<T>(plan, n) + columns;
}

template <typename T>
void sample(const Plan& plan, const void* points, int64_t batch, int64_t n, int64_t dim, int64_t k, int64_t* picks,
            void* workspace, cudaStream_t stream) {
  uint32_t count = static_cast<uint32_t>(n);
  int size = plan.size;
  void* slots = workspace;
  void* nearest = static_cast<char*>(workspace) + plan.slot_bytes();
  void* columns = static_cast<char*>(nearest) + nearest_bytes<T>(plan, n);
  void* in_registers[] = {&points, &batch, &count, &k, &picks, &size, &slots};
  void* in_memory[] = {&points, &batch, &count, &dim, &k, &picks, &size, &slots, &nearest, &columns};
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
constexpr int kEach = 4;
constexpr int kSide = kTile / kEach;  // threads along each side of the tile

template <typename C>
struct alignas(4 * sizeof(C) < 16 ? 4 * sizeof(C) : 16) Quad {  // moved by as few instructions as possible
  C value[kEach];
};

template <typename C>
struct Slice {
  Quad<C> quads[kSlice][kSide + 1];

  template <typename T>
  __device__ void load(const T* rows, int64_t first, int64_t count, int64_t dim, int64_t begin) {
    for (int i = threadIdx.x; i < kTile * kSlice; i += kSide * kSide) {
      const int row = i / kSlice, d = i % kSlice;
      const bool inside = first + row < count && begin + d < dim;
      quads[d][row / kEach].value[row % kEach] = inside ? C(widen(rows[(first + row) * dim + begin + d])) : C(0);
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kSide* kSide)
    squared_distance_tiles(const T* __restrict__ a, const T* __restrict__ b, int64_t rows, int64_t columns, int64_t dim,
                           int64_t row_tiles, int64_t column_tiles, int64_t tiles, T* __restrict__ out) {
  using C = typename Compute<T>::type;
  __shared__ Slice<C> left, right;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t item = tile / (row_tiles * column_tiles);
    const int64_t row = tile / column_tiles % row_tiles * kTile;
    const int64_t column = tile % column_tiles * kTile;
    C sum[kEach][kEach] = {};
    for (int64_t begin = 0; begin < dim; begin += kSlice) {
      left.load(a + item * rows * dim, row, rows, dim, begin);
      right.load(b + item * columns * dim, column, columns, dim, begin);
      __syncthreads();
      const int depth = static_cast<int>(dim - begin < kSlice ? dim - begin : kSlice);
      for (int d = 0; d < depth; ++d) {
        const Quad<C> p = left.quads[d][y], q = right.quads[d][x];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) {
            const C difference = p.value[i] - q.value[j];
            sum[i][j] += difference * difference;
          }
        }
      }
      __syncthreads();
    }
    const int64_t c = column + x * kEach;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = row + y * kEach + i;
      if (r >= rows) {
        break;
      }
      Quad<T> result;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        narrow(sum[i][j], &result.value[j]);
      }
      T* target = out + (item * rows + r) * columns + c;
      if (columns % kEach == 0 && c < columns) {
        *reinterpret_cast<Quad<T>*>(target) = result;
        continue;
      }
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (c + j < columns) {
          target[j] = result.value[j];
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
    return workspace<T>(make_plan<T>(batch, n, dim), n, dim);
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
