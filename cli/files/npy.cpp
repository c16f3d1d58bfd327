#include "files/npy.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace tilewise::files {
namespace {

constexpr std::string_view magic{"\x93NUMPY", 6};
constexpr std::string_view supported = "<f8, <f4, <f2, <i8, <i4 or |b1";
// The dict of a plain array takes some hundred bytes, padding some dozens.
constexpr std::uint64_t longest_npy_header = 65536;

struct NpyType {
  std::string_view descr;
  DType dtype;
};
constexpr std::array<NpyType, 6> npy_types{{{"<f8", DType::float64},
                                            {"<f4", DType::float32},
                                            {"<f2", DType::float16},
                                            {"<i8", DType::int64},
                                            {"<i4", DType::int32},
                                            {"|b1", DType::boolean}}};

// The header is a Python dict of three known keys; this reads that and nothing more of Python.
class DictReader {
 public:
  DictReader(const ByteSource& source, std::string_view text) : source_(source), text_(text) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      bool* seen = key == "descr"           ? &has_descr
                   : key == "fortran_order" ? &has_order
                   : key == "shape"         ? &has_shape
                                            : nullptr;
      if (seen == nullptr) source_.fail(fmt::format("unknown key {} in the header", in_quotes(key)));
      if (std::exchange(*seen, true)) source_.fail(fmt::format("key {} appears twice in the header", in_quotes(key)));
      if (seen == &has_descr) header.dtype = descr();
      if (seen == &has_order) order();
      if (seen == &has_shape) header.shape = shape();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) fail("the end of the header");
    if (!has_descr || !has_order || !has_shape) {
      source_.fail("the header must hold 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    source_.fail(fmt::format("malformed .npy header at its byte {}: expected {}", at_, expected));
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool accept(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}'", c));
  }

  bool accept_word(std::string_view word) {
    skip_blanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  // A literal without escapes, in single or double quotes.
  std::string_view string() {
    skip_blanks();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail("a string");
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("the end of a string");
    const std::string_view content = text_.substr(at_, end - at_);
    at_ = end + 1;
    return content;
  }

  DType descr() {
    skip_blanks();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      source_.fail(fmt::format("structured dtypes are not supported; expected {}", supported));
    }
    const std::string_view text = string();
    if (text == "b1") return DType::boolean;
    for (const NpyType& type : npy_types) {
      if (text == type.descr) return type.dtype;
    }
    if (text.starts_with('>')) {
      source_.fail(fmt::format("dtype {} is big-endian; expected {}", in_quotes(text), supported));
    }
    source_.fail(fmt::format("dtype {} is not supported; expected {}", in_quotes(text), supported));
  }

  void order() {
    if (accept_word("False")) return;
    if (accept_word("True")) {
      source_.fail("fortran_order is True; expected C order (write it from numpy.ascontiguousarray)");
    }
    fail("True or False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> sizes;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail("',' or ')'");
      sizes.push_back(size());
      comma = accept(',');
    }
    // In Python (3) is a number and (3,) a tuple.
    if (sizes.size() == 1 && !comma) fail("a tuple, as in (3,)");
    return sizes;
  }

  std::int64_t size() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '-') source_.fail("the shape holds a negative size");
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) source_.fail("the shape holds a size beyond 64 bits");
    if (error != std::errc{}) fail("a size");
    if (*begin == '0' && end != begin + 1) fail("a size without leading zeros");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  const ByteSource& source_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(const ByteSource& source) {
  std::array<unsigned char, 12> start{};
  const std::uint64_t shortest = 10;
  if (source.size() < shortest) source.fail(fmt::format("{} bytes are too few for a .npy file", source.size()));
  source.read(0, std::as_writable_bytes(std::span(start).first(shortest)));
  for (std::size_t i = 0; i < magic.size(); ++i) {
    if (start[i] != static_cast<unsigned char>(magic[i]))
      source.fail("is not a .npy file: it does not begin with \\x93NUMPY");
  }
  const int major = start[6];
  const int minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    source.fail(fmt::format(".npy version {}.{}; expected 1.0, 2.0 or 3.0", major, minor));
  }
  const std::uint64_t prefix = major == 1 ? 10 : 12;
  if (source.size() < prefix) source.fail("ends inside the .npy header");
  source.read(0, std::as_writable_bytes(std::span(start).first(prefix)));
  std::uint64_t length = 0;
  for (std::size_t i = prefix; i-- > 8;) length = length * 256 + start[i];
  if (length > source.size() - prefix) {
    source.fail(fmt::format("promises a header of {} bytes, but {} follow", length, source.size() - prefix));
  }
  if (length > longest_npy_header) {
    source.fail(fmt::format("a .npy header of {} bytes; expected at most {}", length, longest_npy_header));
  }
  std::string text(length, ' ');
  source.read(prefix, std::as_writable_bytes(std::span(text)));

  NpyHeader header = DictReader(source, text).read();
  header.data_offset = prefix + length;
  const std::uint64_t held = source.size() - header.data_offset;
  const std::optional<std::int64_t> elements = element_count(header.shape);
  const std::uint64_t item = size_of(header.dtype);
  if (!elements || static_cast<std::uint64_t>(*elements) > UINT64_MAX / item) {
    source.fail(fmt::format("shape {} has more elements than 64 bits can count", shape_text(header.shape)));
  }
  const std::uint64_t needed = static_cast<std::uint64_t>(*elements) * item;
  if (needed != held) {
    source.fail(fmt::format("shape {} of {} takes {} bytes, but {} follow the header", shape_text(header.shape),
                            name_of(header.dtype), needed, held));
  }
  return header;
}

verify::Tensor read_npy(const ByteSource& source) {
  NpyHeader header = parse_npy_header(source);
  if (header.shape.size() > max_rank) {
    source.fail(fmt::format("rank {}; expected at most {}", header.shape.size(), max_rank));
  }
  verify::Tensor tensor(header.dtype, std::move(header.shape));
  source.read(header.data_offset, std::span(tensor.storage()));
  return tensor;
}

std::string npy_header(const std::string& file, DType dtype, std::span<const std::int64_t> shape) {
  std::string_view descr;
  for (const NpyType& type : npy_types) {
    if (type.dtype == dtype) descr = type.descr;
  }
  if (descr.empty()) throw FileError(file + ": bfloat16 has no .npy form; use safetensors");
  std::string sizes;
  for (const std::int64_t size : shape) sizes += fmt::format("{}{},", sizes.empty() ? "" : " ", size);
  if (shape.size() > 1) sizes.pop_back();
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  constexpr std::size_t prefix = 10;
  dict.append(63 - (prefix + dict.size()) % 64, ' ');  // the data starts at a multiple of 64
  dict += '\n';
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

}  // namespace tilewise::files
