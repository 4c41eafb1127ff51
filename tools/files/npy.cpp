// The published format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/files/data.h"
#include "tools/report.h"

static_assert(std::endian::native == std::endian::little, "elements are taken as they are in the file");

namespace srjit {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string_view descr;
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

/// Reads the header's dictionary, a Python literal with the keys 'descr', 'fortran_order' and 'shape' in any order.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Result<Header> read() {
    Header header;
    unsigned seen = 0;
    if (!take('{')) return expected("'{'");
    while (!take('}')) {
      const auto key = string();
      if (!key) return expected("a key or '}'");
      if (!take(':')) return expected("':'");
      unsigned bit = 0;
      if (*key == "descr") {
        bit = 1;
        const auto descr = string();
        if (!descr) return expected("a simple type such as '<f8'");
        header.descr = *descr;
      } else if (*key == "fortran_order") {
        bit = 2;
        header.fortran_order = word("True");
        if (!header.fortran_order && !word("False")) return expected("True or False");
      } else if (*key == "shape") {
        bit = 4;
        if (!tuple(header.shape)) return expected("a shape such as (100, 3)");
      } else {
        return Error{Errc::kIo, fmt::format("header has the unknown key {}", text::inQuotes(*key)), {}};
      }
      if ((seen & bit) != 0)
        return Error{Errc::kIo, fmt::format("header has the key {} twice", text::inQuotes(*key)), {}};
      seen |= bit;
      if (!take(',') && !peek('}')) return expected("',' or '}'");
    }
    if (seen != 7) return Error{Errc::kIo, "header lacks one of 'descr', 'fortran_order', 'shape'", {}};
    skipSpaces();
    if (at_ != text_.size()) return expected("its end");
    return header;
  }

 private:
  Error expected(std::string_view what) {
    skipSpaces();
    return {Errc::kIo,
            fmt::format("header, byte {}: expected {}, found {}", at_ + 1, what,
                        at_ < text_.size() ? text::inQuotes(text_.substr(at_, 12)) : "its end"),
            {}};
  }
  void skipSpaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool peek(char c) {
    skipSpaces();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    const bool there = peek(c);
    if (there) ++at_;
    return there;
  }
  bool word(std::string_view expected_word) {
    skipSpaces();
    if (!text_.substr(at_).starts_with(expected_word)) return false;
    at_ += expected_word.size();
    return true;
  }
  std::optional<std::string_view> string() {
    if (!peek('\'') && !peek('"')) return std::nullopt;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }
  bool tuple(std::vector<std::uint64_t>& values) {
    if (!take('(')) return false;
    while (!take(')')) {
      skipSpaces();
      std::uint64_t value = 0;
      const auto [end, failed] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (failed != std::errc{}) return false;
      at_ = static_cast<std::size_t>(end - text_.data());
      values.push_back(value);
      if (!take(',') && !peek(')')) return false;
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Splits the file into the header's text and the elements after it.
Result<std::pair<std::string_view, std::string_view>> split(std::string_view bytes) {
  const auto fail = [](std::string message) { return Error{Errc::kIo, std::move(message), {}}; };
  if (!bytes.starts_with(kMagic)) return fail("not an .npy file: it does not start with \\x93NUMPY");
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() < 2) return fail("the file ends within its first 8 bytes");
  const int version = static_cast<unsigned char>(bytes[0]);
  if (version < 1 || version > 3) return fail(fmt::format("format version {} is unknown; 1 to 3 are read", version));
  bytes.remove_prefix(2);
  const std::size_t width = version == 1 ? 2 : 4;
  std::uint32_t length = 0;
  if (bytes.size() >= width) std::memcpy(&length, bytes.data(), width);
  if (bytes.size() < width || bytes.size() - width < length) return fail("the file ends within its header");
  return std::pair{bytes.substr(width, length), bytes.substr(width + length)};
}

/// NumPy's bool: a byte.
struct Truth {
  std::uint8_t byte;
  explicit operator double() const noexcept { return byte != 0 ? 1 : 0; }
};

/// Copies elements of type T into the columns of `table`.
template <class T>
void fill(DataTable& table, std::string_view elements, std::size_t rows, bool fortran_order) {
  const std::size_t count = table.columns.size();
  for (std::size_t column = 0; column < count; ++column) {
    std::vector<double>& values = table.columns[column];
    values.resize(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t index = fortran_order ? column * rows + row : row * count + column;
      T value;
      std::memcpy(&value, elements.data() + index * sizeof(T), sizeof(T));
      values[row] = static_cast<double>(value);
    }
  }
}

struct ElementType {
  std::string_view descr;  ///< of the header
  std::size_t width;       ///< in bytes
  void (*fill)(DataTable& table, std::string_view elements, std::size_t rows, bool fortran_order);
};
template <class T>
constexpr ElementType typeOf(std::string_view descr) {
  return {descr, sizeof(T), fill<T>};
}
/// Integers beyond 2^53 become the nearest double.
constexpr ElementType kElementTypes[] = {
    typeOf<double>("<f8"),        typeOf<float>("<f4"),         typeOf<Truth>("|b1"),
    typeOf<std::int8_t>("|i1"),   typeOf<std::uint8_t>("|u1"),  typeOf<std::int16_t>("<i2"),
    typeOf<std::uint16_t>("<u2"), typeOf<std::int32_t>("<i4"),  typeOf<std::uint32_t>("<u4"),
    typeOf<std::int64_t>("<i8"),  typeOf<std::uint64_t>("<u8"),
};

Result<DataTable> parse(std::string_view bytes) {
  const auto fail = [](std::string message) { return Error{Errc::kIo, std::move(message), {}}; };
  const auto parts = split(bytes);
  if (!parts) return parts.error();
  const auto [text, elements] = *parts;
  const Result<Header> header = HeaderReader(text).read();
  if (!header) return header.error();
  const auto* const type = std::ranges::find(kElementTypes, header->descr, &ElementType::descr);
  if (type == std::end(kElementTypes)) {
    return fail(
        fmt::format("elements of type {}; data must be booleans, integers, float32 or float64 of this machine's "
                    "byte order: convert them with numpy.save(file, array.astype(float))",
                    text::inQuotes(header->descr)));
  }
  const std::size_t width = type->width;
  const auto& shape = header->shape;
  if (shape.size() != 2) {
    return fail(fmt::format("the array has {} dimension{}; data must have 2, rows and columns", shape.size(),
                            shape.size() == 1 ? "" : "s"));
  }
  if (shape[0] == 0 || shape[1] == 0) return fail(fmt::format("the shape ({}, {}) holds no rows", shape[0], shape[1]));
  if (shape[1] > elements.size() / width / shape[0] || shape[0] * shape[1] * width != elements.size()) {
    return fail(fmt::format("shape ({}, {}) of {}-byte elements does not fit the {} bytes that follow the header",
                            shape[0], shape[1], width, elements.size()));
  }
  DataTable table;
  table.columns.resize(shape[1]);
  for (std::size_t i = 0; i < shape[1]; ++i) table.names.push_back(std::to_string(i));
  table.from_f32 = type->descr == "<f4";
  type->fill(table, elements, shape[0], header->fortran_order);
  return table;
}

}  // namespace

Result<DataTable> parseNpy(std::string_view bytes, std::string_view origin) {
  Result<DataTable> table = parse(bytes);
  if (!table) table.error().message = fmt::format("{}: {}", origin, table.error().message);
  return table;
}

}  // namespace srjit
