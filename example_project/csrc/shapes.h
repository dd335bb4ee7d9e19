// What the operators accept and what they return, checked in one place for every binding. No torch headers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace torch_ext_example {

using Shape = std::vector<std::int64_t>;

inline std::string text(const Shape& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return out + (shape.size() == 1 ? ",)" : ")");
}

// std::invalid_argument reaches Python as ValueError; on the stable ABI, torch 2.15 hands every error over as RuntimeError.
inline void require(bool condition, const std::string& message) {
  if (!condition) {
    throw std::invalid_argument(message);
  }
}

struct FarthestPoints {
  std::int64_t batch, points, dim, picks;
  Shape result;  // (k) or (B, k)
};

inline FarthestPoints farthest_points(const Shape& points, std::int64_t k, bool floating) {
  require(floating, "farthest_point_sampling: points must be float32, float64, float16 or bfloat16");
  require(points.size() == 2 || points.size() == 3,
          "farthest_point_sampling: points must be (N, D) or (B, N, D), got " + text(points));
  const bool batched = points.size() == 3;
  const std::int64_t n = points[points.size() - 2];
  require(k >= 0, "farthest_point_sampling: k must not be negative, got " + std::to_string(k));
  require(k <= n, "farthest_point_sampling: k must be at most the number of points, " + std::to_string(n) + ", got " +
                      std::to_string(k));
  require(n < (std::int64_t{1} << 31), "farthest_point_sampling: at most 2**31 - 1 points, got " + std::to_string(n));
  return {batched ? points[0] : 1, n, points.back(), k, batched ? Shape{points[0], k} : Shape{k}};
}

struct SquaredDistance {
  std::int64_t batch, rows, columns, dim;
  Shape result;  // (..., N, M)
};

inline SquaredDistance squared_distances(const Shape& a, const Shape& b, bool floating, bool alike) {
  require(floating, "squared_distance: a and b must be float32, float64, float16 or bfloat16");
  require(alike, "squared_distance: a and b must have one dtype and be on one device");
  require(a.size() >= 2 && a.size() == b.size() && a.back() == b.back() &&
              std::equal(a.begin(), a.end() - 2, b.begin()),
          "squared_distance: a must be (..., N, D) and b (..., M, D) with the same leading dimensions, got " + text(a) +
              " and " + text(b));
  SquaredDistance out{1, a[a.size() - 2], b[b.size() - 2], a.back(), a};
  for (std::size_t i = 0; i + 2 < a.size(); ++i) {
    out.batch *= a[i];
  }
  out.result.back() = out.columns;
  return out;
}

}  // namespace torch_ext_example
