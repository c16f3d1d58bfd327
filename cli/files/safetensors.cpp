#include "files/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace tilewise::files {
namespace {

// The format allows 100 MB; headers of the largest models take about 1 MB.
constexpr std::uint64_t longest_safetensors_header = std::uint64_t{16} << 20;
constexpr std::size_t highest_rank = 64;
constexpr std::string_view metadata_key = "__metadata__";

struct SafetensorsType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<SafetensorsType, 7> safetensors_types{{{"F64", DType::float64},
                                                            {"F32", DType::float32},
                                                            {"F16", DType::float16},
                                                            {"BF16", DType::bfloat16},
                                                            {"BOOL", DType::boolean},
                                                            {"I32", DType::int32},
                                                            {"I64", DType::int64}}};

std::optional<DType> dtype_of(std::string_view name) {
  for (const SafetensorsType& type : safetensors_types) {
    if (name == type.name) return type.dtype;
  }
  return {};
}

// Bytes of one element; 0 for dtypes whose size is not known here.
std::uint64_t item_size(std::string_view dtype) {
  if (const auto known = dtype_of(dtype)) return size_of(*known);
  for (const std::string_view one : {"U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    if (dtype == one) return 1;
  }
  if (dtype == "U16" || dtype == "I16") return 2;
  if (dtype == "U32") return 4;
  if (dtype == "U64" || dtype == "C64") return 8;
  return 0;
}

// Takes the header's JSON event by event: it builds no tree, stops at the first event that the format has no place
// for, and so never nests deeper than a tensor's shape.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const ByteSource& source, std::map<std::string, StoredTensor>& tensors,
               std::map<std::string, std::string>& metadata)
      : source_(source), tensors_(tensors), metadata_(metadata) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_float(double, const std::string&) override { unexpected("a number that is no 64-bit integer"); }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
  bool number_integer(std::int64_t) override { unexpected("a negative number"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::shape) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) unexpected("a size beyond 63 bits");
      if (tensor_->shape.size() == highest_rank) unexpected(fmt::format("more than {} dimensions", highest_rank));
      tensor_->shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::offsets) {
      if (offsets_ == 2) unexpected("a third number");
      (offsets_++ == 0 ? tensor_->begin : tensor_->end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      metadata_[key_] = std::move(value);
    } else if (place_ == Place::tensor && key_ == "dtype") {
      tensor_->dtype = std::move(value);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top && key_ == metadata_key) {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::tensor;
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    if (place_ == Place::top) {
      if (name == metadata_key) {
        if (std::exchange(has_metadata_, true)) twice(name);
      } else {
        const auto [entry, inserted] = tensors_.try_emplace(name);
        if (!inserted) twice(name);
        tensor_ = &entry->second;
      }
      top_key_ = name;
    } else if (place_ == Place::metadata) {
      if (!metadata_.try_emplace(name).second) twice(name);
    } else {
      bool* seen = name == "dtype"          ? &has_dtype_
                   : name == "shape"        ? &has_shape_
                   : name == "data_offsets" ? &has_offsets_
                                            : nullptr;
      if (seen == nullptr) unexpected(fmt::format("the key {}", in_quotes(name)));
      if (std::exchange(*seen, true)) twice(name);
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::top) {
      place_ = Place::outside;
      return true;
    }
    if (place_ == Place::tensor && !(has_dtype_ && has_shape_ && has_offsets_)) {
      source_.fail(fmt::format("tensor {}: expected dtype, shape and data_offsets", in_quotes(top_key_)));
    }
    place_ = Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
      offsets_ = 0;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) unexpected("fewer than two numbers");
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    source_.fail(fmt::format("the header is not valid JSON at its byte {}", position));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void unexpected(const std::string& what) const {
    switch (place_) {
      case Place::outside: source_.fail(fmt::format("the header holds {}; expected an object", what));
      case Place::metadata: source_.fail(fmt::format("__metadata__ holds {}; expected strings only", what));
      case Place::top: source_.fail(fmt::format("{} is {}; expected an object", in_quotes(top_key_), what));
      case Place::tensor:
      case Place::shape:
      case Place::offsets: break;
    }
    const std::string_view expected = key_ == "dtype"          ? "a string"
                                      : key_ == "shape"        ? "an array of sizes"
                                      : key_ == "data_offsets" ? "an array of two offsets"
                                                               : "dtype, shape and data_offsets only";
    source_.fail(fmt::format("tensor {}: {} holds {}; expected {}", in_quotes(top_key_),
                             key_.empty() ? "it" : in_quotes(key_), what, expected));
  }

  [[noreturn]] void twice(const std::string& name) const {
    source_.fail(fmt::format("the name {} appears twice in the header", in_quotes(name)));
  }

  const ByteSource& source_;
  std::map<std::string, StoredTensor>& tensors_;
  std::map<std::string, std::string>& metadata_;
  Place place_ = Place::outside;
  StoredTensor* tensor_ = nullptr;
  std::string top_key_;
  std::string key_;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int offsets_ = 0;
};

void check_size(const ByteSource& source, const std::string& name, const StoredTensor& tensor) {
  const std::optional<std::int64_t> elements = element_count(tensor.shape);
  if (!elements) {
    source.fail(fmt::format("tensor {}: shape {} has more elements than 64 bits can count", in_quotes(name),
                            shape_text(tensor.shape)));
  }
  const std::uint64_t item = item_size(tensor.dtype);
  if (item == 0) return;
  const auto count = static_cast<std::uint64_t>(*elements);
  const std::uint64_t held = tensor.end - tensor.begin;
  if (count > UINT64_MAX / item || count * item != held) {
    source.fail(fmt::format("tensor {}: shape {} of {} does not take the {} bytes that data_offsets give it",
                            in_quotes(name), shape_text(tensor.shape), tensor.dtype, held));
  }
}

// Sorted by offset, the tensors must follow each other from 0 to the end of the data.
void check_layout(const ByteSource& source, const std::map<std::string, StoredTensor>& tensors,
                  std::uint64_t data_bytes) {
  std::vector<const std::pair<const std::string, StoredTensor>*> sorted;
  sorted.reserve(tensors.size());
  for (const auto& entry : tensors) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t at = 0;
  for (const auto* entry : sorted) {
    const auto& [name, tensor] = *entry;
    if (tensor.begin > tensor.end || tensor.end > data_bytes) {
      source.fail(fmt::format("tensor {}: data_offsets [{}, {}] do not lie in the {} bytes of data", in_quotes(name),
                              tensor.begin, tensor.end, data_bytes));
    }
    if (tensor.begin != at) {
      source.fail(fmt::format("tensor {}: data_offsets start at {}, {} the tensor before it, which ends at {}",
                              in_quotes(name), tensor.begin, tensor.begin < at ? "inside" : "with a hole after", at));
    }
    at = tensor.end;
    check_size(source, name, tensor);
  }
  if (at != data_bytes) source.fail(fmt::format("{} bytes follow the last tensor", data_bytes - at));
}

}  // namespace

Safetensors::Safetensors(const ByteSource& source) : source_(source) {
  std::array<unsigned char, 8> start{};
  if (source.size() < start.size()) {
    source.fail(fmt::format("{} bytes are too few for a safetensors file", source.size()));
  }
  source.read(0, std::as_writable_bytes(std::span(start)));
  std::uint64_t length = 0;
  for (std::size_t i = start.size(); i-- > 0;) length = length * 256 + start[i];
  if (length > source.size() - start.size()) {
    source.fail(fmt::format("promises a header of {} bytes, but {} follow: not a safetensors file, or a truncated one",
                            length, source.size() - start.size()));
  }
  if (length > longest_safetensors_header) {
    source.fail(fmt::format("a header of {} bytes; expected at most {}", length, longest_safetensors_header));
  }
  std::string text(length, ' ');
  source.read(start.size(), std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{')) source.fail("the header does not begin with '{': not a safetensors file");
  // The JSON reader takes a zero byte for the end of its input and would not see what follows.
  if (text.find('\0') != std::string::npos) source.fail("the header holds a zero byte");
  data_offset_ = start.size() + length;
  HeaderEvents events(source, tensors_, metadata_);
  nlohmann::json::sax_parse(text, &events);
  check_layout(source, tensors_, source.size() - data_offset_);
}

verify::Tensor Safetensors::read(const std::string& name) const {
  const auto entry = tensors_.find(name);
  if (entry == tensors_.end()) source_.fail(fmt::format("holds no tensor {}", in_quotes(name)));
  const StoredTensor& stored = entry->second;
  const std::optional<DType> dtype = dtype_of(stored.dtype);
  if (!dtype) {
    source_.fail(fmt::format("tensor {}: dtype {} is not supported; expected F64, F32, F16, BF16, BOOL, I32 or I64",
                             in_quotes(name), in_quotes(stored.dtype)));
  }
  if (stored.shape.size() > max_rank) {
    source_.fail(
        fmt::format("tensor {}: rank {}; expected at most {}", in_quotes(name), stored.shape.size(), max_rank));
  }
  verify::Tensor tensor(*dtype, stored.shape);
  source_.read(data_offset_ + stored.begin, std::span(tensor.storage()));
  return tensor;
}

std::string safetensors_header(std::vector<NamedTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t a_size = size_of(a.tensor->dtype());
    const std::size_t b_size = size_of(b.tensor->dtype());
    return a_size != b_size ? a_size > b_size : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t at = 0;
  for (const NamedTensor& named : tensors) {
    const auto code =
        std::find_if(safetensors_types.begin(), safetensors_types.end(),
                     [&](const SafetensorsType& candidate) { return candidate.dtype == named.tensor->dtype(); });
    const std::uint64_t end = at + named.tensor->storage().size();
    header[named.name] = {{"dtype", code->name}, {"shape", named.tensor->shape()}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return bytes + text;
}

}  // namespace tilewise::files
