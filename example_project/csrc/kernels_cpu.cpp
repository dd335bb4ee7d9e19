// CPU kernels: loops over fixed numbers of lanes, which every compiler turns into vector instructions.
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace torch_ext_example {
namespace {

constexpr std::int64_t kChunk = 256;                        // points whose distances stay in the first-level cache
template <typename T>
constexpr std::int64_t kLanes = 128 / std::int64_t{sizeof(T)};  // eight 16-byte registers

// Brings `chunk` up to date with one more picked point and returns its largest distance. The coordinates of the chunk
// lie one dimension after the other, `stride` apart.
template <typename T>
T advance(const T* coordinates, std::int64_t stride, const T* picked, std::int64_t dim, T* nearest) {
  T distance[kChunk] = {};
  for (std::int64_t d = 0; d < dim; ++d) {
    const T* column = coordinates + d * stride;
    const T origin = picked[d];
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const T difference = column[i] - origin;
      distance[i] += difference * difference;
    }
  }
  T largest[kLanes<T>];
  std::fill_n(largest, kLanes<T>, T(-1));
  for (std::int64_t i = 0; i < kChunk; i += kLanes<T>) {
    for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) {
      const T kept = distance[i + lane] < nearest[i + lane] ? distance[i + lane] : nearest[i + lane];  // false for NaN
      nearest[i + lane] = kept;
      largest[lane] = kept > largest[lane] ? kept : largest[lane];
    }
  }
  return *std::max_element(largest, largest + kLanes<T>);
}

template <typename T>
void sample(const T* points, std::int64_t n, std::int64_t dim, std::int64_t k, std::int64_t* picks) {
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const std::int64_t stride = chunks * kChunk;
  std::vector<T> coordinates(static_cast<std::size_t>(stride * dim));
  // What is not to be picked is at distance -1: points that are not finite, and the padding at the end.
  std::vector<T> nearest(static_cast<std::size_t>(stride), T(-1));
  std::fill_n(nearest.begin(), n, std::numeric_limits<T>::infinity());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const T coordinate = coordinates[d * stride + i] = points[i * dim + d];
      if (!std::isfinite(coordinate)) {
        nearest[i] = T(-1);
      }
    }
  }
  std::int64_t picked = 0;
  for (std::int64_t pick = 0; pick < k; ++pick) {
    picks[pick] = picked;
    T largest = T(-2);
    std::int64_t where = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t begin = chunk * kChunk;
      const T candidate =
          advance(coordinates.data() + begin, stride, points + picked * dim, dim, nearest.data() + begin);
      if (candidate > largest) {  // strictly: the lowest index wins
        largest = candidate;
        where = begin;
      }
    }
    picked = std::find(nearest.begin() + where, nearest.begin() + where + kChunk, largest) - nearest.begin();
  }
}

}  // namespace

template <typename T>
void farthest_point_sampling_cpu(const T* points, std::int64_t batch, std::int64_t n, std::int64_t dim, std::int64_t k,
                                 std::int64_t* picks) {
  for (std::int64_t item = 0; item < batch; ++item) {
    sample(points + item * n * dim, n, dim, k, picks + item * k);
  }
}

template <typename T>
void squared_distance_cpu(const T* a, const T* b, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                          std::int64_t dim, T* out) {
  constexpr std::int64_t lanes = kLanes<T>;
  std::vector<T> tile(static_cast<std::size_t>(lanes * dim));  // `lanes` points of b, one dimension after the other
  for (std::int64_t item = 0; item < batch; ++item, a += rows * dim, b += columns * dim, out += rows * columns) {
    for (std::int64_t column = 0; column < columns; column += lanes) {
      const std::int64_t width = std::min(lanes, columns - column);
      for (std::int64_t d = 0; d < dim; ++d) {
        for (std::int64_t lane = 0; lane < width; ++lane) {
          tile[d * lanes + lane] = b[(column + lane) * dim + d];
        }
      }
      for (std::int64_t row = 0; row < rows; ++row) {
        T sum[lanes] = {};
        for (std::int64_t d = 0; d < dim; ++d) {
          const T value = a[row * dim + d];
          for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const T difference = value - tile[d * lanes + lane];
            sum[lane] += difference * difference;
          }
        }
        std::copy_n(sum, width, out + row * columns + column);
      }
    }
  }
}

template void farthest_point_sampling_cpu(const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          std::int64_t*);
template void farthest_point_sampling_cpu(const double*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          std::int64_t*);
template void squared_distance_cpu(const float*, const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                   float*);
template void squared_distance_cpu(const double*, const double*, std::int64_t, std::int64_t, std::int64_t,
                                   std::int64_t, double*);

}  // namespace torch_ext_example
