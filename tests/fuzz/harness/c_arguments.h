// Arguments of calls of the C interface, decoded from bytes: what a caller may pass, right or wrong. Arrays are as long
// as their counts say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ir/population.h"
#include "runtime/c_api/srjit.h"
#include "tests/fuzz/harness/bytes.h"
#include "tests/runtime/c_api/owned.h"

namespace srjit::fuzz {

using c_api::Owned;

inline constexpr std::size_t kMostObjects = 4, kMostNumbers = 64;

/// Objects of one type; one that is picked may be null.
template <class T>
class Pool {
 public:
  void add(T* object) {
    if (object == nullptr) return;
    if (objects_.size() == kMostObjects) objects_.erase(objects_.begin());
    objects_.emplace_back(object);
  }
  T* pick(ByteReader& bytes) const {
    const std::uint8_t which = bytes.byte();
    return objects_.empty() || which >= 250 ? nullptr : objects_[which % objects_.size()].get();
  }
  void drop(ByteReader& bytes) {
    if (!objects_.empty()) objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(bytes.below(objects_.size())));
  }

 private:
  std::vector<Owned<T>> objects_;
};

/// A struct of srjit.h with memory behind it, as a caller of a newer version has it; sometimes with another size.
template <class Struct>
class Sized {
 public:
  explicit Sized(ByteReader& bytes) : memory_(8192 / sizeof(std::uint64_t)) {
    const std::uint8_t kind = bytes.byte();
    constexpr std::uint64_t kSizes[] = {0, 8, sizeof(Struct) - 8, sizeof(Struct) + 8, 4096, 4097, ~std::uint64_t{0}};
    get()->size = kind < 248 ? sizeof(Struct) : kSizes[kind - 248 < 7 ? kind - 248 : 0];
    if (kind == 255) memory_[sizeof(Struct) / sizeof(std::uint64_t) + 1] = 1;
  }
  Struct* get() { return reinterpret_cast<Struct*>(memory_.data()); }
  Struct* operator->() { return get(); }

 private:
  std::vector<std::uint64_t> memory_;
};

/// 0 to `most`, or another.
inline std::int32_t codeFrom(ByteReader& bytes, std::int32_t most) {
  const std::uint8_t value = bytes.byte();
  if (value == 255) return INT32_MIN;
  return value >= 250 ? value - 252 : value % (most + 1);
}

/// Names, each a text with its zero, or null.
class Texts {
 public:
  Texts(ByteReader& bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      texts_.emplace_back(textOf(bytes.take(bytes.byte() % 24)));
    }
    for (const std::string& text : texts_) pointers_.push_back(text.c_str());
    if (count > 0 && bytes.byte() > 250) pointers_.back() = nullptr;
  }
  const char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<const char*> pointers_;
};

/// A population with its arrays.
class PopulationArgument {
 public:
  explicit PopulationArgument(ByteReader& bytes) : view_(bytes) {
    std::int64_t end = 0;
    offsets_.push_back(0);
    for (std::size_t e = bytes.byte() % 4; e > 0; --e) offsets_.push_back(end += bytes.byte() % 8);
    if (bytes.byte() > 240) offsets_[bytes.below(offsets_.size())] = bytes.little<std::int64_t>();
    // What the last offset says must be there.
    offsets_.back() = std::min<std::int64_t>(offsets_.back(), kMostNumbers);
    for (std::int64_t i = 0; i < offsets_.back(); ++i) {
      const std::uint8_t kind = bytes.byte();
      codes_.push_back(kind < 128   ? 1 + kind % 62
                       : kind < 200 ? variableCode(kind % 3)
                       : kind < 220 ? parameterCode(kind % 2)
                       : kind < 250 ? kConstantCode
                                    : bytes.little<std::int32_t>());
      constants_.push_back(bytes.number());
    }
    const std::uint8_t nulls = bytes.byte();
    view_->expressions = nulls == 255 ? 0 : offsets_.size() - 1;
    view_->codes = nulls == 254 ? nullptr : codes_.data();
    view_->constants = nulls % 8 == 1 ? nullptr : constants_.data();
    view_->offsets = nulls == 253 ? nullptr : offsets_.data();
    if (nulls == 255) offsets_.assign(1, 0);
    view_->notation = codeFrom(bytes, SRJIT_PREFIX);
    view_->reserved = bytes.byte() == 255 ? 1 : 0;
  }
  srjit_population* get() { return view_.get(); }

 private:
  Sized<srjit_population> view_;
  std::vector<std::int32_t> codes_;
  std::vector<double> constants_;
  std::vector<std::int64_t> offsets_;
};

/// A matrix with its numbers.
class MatrixArgument {
 public:
  MatrixArgument(ByteReader& bytes, std::uint64_t rows, std::uint64_t columns) : view_(bytes) {
    const std::uint8_t layout = bytes.byte();
    view_->rows = rows;
    view_->columns = columns;
    view_->type = codeFrom(bytes, SRJIT_F64);
    view_->on_device = bytes.byte() == 255 ? 1 : 0;
    const bool is_f32 = view_->type == SRJIT_F32;
    const auto width = static_cast<std::int64_t>(is_f32 ? sizeof(float) : sizeof(double));
    numbers_.resize(rows * columns * static_cast<std::size_t>(width));
    for (std::size_t i = 0; i < rows * columns; ++i) {
      const double number = bytes.number();
      const auto narrow = static_cast<float>(number);
      std::memcpy(numbers_.data() + i * static_cast<std::size_t>(width),
                  is_f32 ? static_cast<const void*>(&narrow) : static_cast<const void*>(&number),
                  static_cast<std::size_t>(width));
    }
    view_->data = numbers_.data();
    if (layout % 8 == 1) {
      view_->row_stride = width * static_cast<std::int64_t>(columns);
      view_->column_stride = width;
    } else if (layout % 8 == 2 && rows > 0) {
      view_->row_stride = -width;
      view_->column_stride = width * static_cast<std::int64_t>(rows);
      view_->data = numbers_.data() + static_cast<std::size_t>(width) * (columns == 0 ? 0 : rows - 1);
    } else if (layout == 251) {
      view_->row_stride = 1;
      view_->column_stride = 3;
    }
    if (layout == 255) view_->data = nullptr;
  }
  srjit_matrix* get() { return view_.get(); }

 private:
  Sized<srjit_matrix> view_;
  std::vector<unsigned char> numbers_;
};

}  // namespace srjit::fuzz
