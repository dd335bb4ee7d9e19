// pybind11 from torch's own headers, with its caster of tensors.
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

struct Point {
  double x;
};

PYBIND11_MODULE(_C, m) {
  m.def("negate", [](const at::Tensor& x) { return x.neg(); });
  pybind11::class_<Point>(m, "Point")
      .def(pybind11::init<double>())
      .def_readwrite("x", &Point::x)
      .def(pybind11::pickle([](const Point& p) { return pybind11::make_tuple(p.x); },
                            [](const pybind11::tuple& t) { return Point{t[0].cast<double>()}; }));
}
