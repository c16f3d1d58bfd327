#pragma once

// A row-major matrix: element (row, column) lies at row * columns + column. It is all that the rungs share.

#include <cstddef>
#include <vector>

namespace tilewise::reference {

using Index = std::ptrdiff_t;  // signed, so that a difference of two positions may be negative

template <class T>
class Matrix {
 public:
  Matrix(Index rows, Index columns, T value = T(0))
      : rows_(rows), columns_(columns), elements_(static_cast<std::size_t>(rows * columns), value) {}

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] T* data() { return elements_.data(); }
  [[nodiscard]] const T* data() const { return elements_.data(); }

  T& operator()(Index row, Index column) { return elements_[static_cast<std::size_t>(row * columns_ + column)]; }
  const T& operator()(Index row, Index column) const {
    return elements_[static_cast<std::size_t>(row * columns_ + column)];
  }

 private:
  Index rows_;
  Index columns_;
  std::vector<T> elements_;
};

}  // namespace tilewise::reference
