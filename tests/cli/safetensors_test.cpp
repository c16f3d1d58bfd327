#include "files/safetensors.hpp"

#include "memory_file.hpp"

namespace tilewise::files {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

void refused(const std::string& file, const std::string& words) {
  expect_refused(file, words, [](const ByteSource& source) { const Safetensors opened(source); });
}

// A header of one tensor t, with eight bytes of data.
void refused_header(const std::string& header, const std::string& words) {
  refused(file_of(header, raw<float>({1, 2})), words);
}

const std::string good = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(Safetensors, ReadsTensorsAndMetadata) {
  // Written by hand after the format's description; offsets need not be in the order of the names.
  const std::string header =
      R"({"__metadata__":{"about":"a \"test\" \u00e9"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},)"
      R"("a":{"data_offsets":[0,2],"shape":[2],"dtype":"BOOL"},"e":{"dtype":"F64","shape":[0,3],"data_offsets":[2,2]},)"
      R"("s":{"dtype":"I64","shape":[],"data_offsets":[10,18]}}   )";
  const std::string bytes =
      file_of(header, std::string("\x01\x00", 2) + raw<float>({1.5, -2}) + raw<std::int64_t>({-7}));
  const MemorySource source = memory_file(bytes);
  const Safetensors file(source);
  EXPECT_EQ(file.metadata().at("about"), "a \"test\" \xc3\xa9");
  EXPECT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.read("b").shape(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(file.read("b").get(1), -2);
  EXPECT_EQ(file.read("a").get(0), 1);
  EXPECT_EQ(file.read("e").element_count(), 0);
  EXPECT_EQ(file.read("s").get(0), -7);
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("c"));
  EXPECT_THROW((void)file.read("c"), FileError);
}

TEST(Safetensors, WritesTheFormatsBytes) {
  verify::Tensor half(DType::float16, {3});
  verify::Tensor single(DType::float32, {2, 1});
  std::vector<NamedTensor> tensors{{"o", &half}, {"lse", &single}};
  const std::string header = safetensors_header(tensors);
  // Wider elements first, so that both stay aligned; padded to a multiple of eight.
  const std::string json =
      R"({"lse":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"o":{"dtype":"F16","shape":[3],"data_offsets":[8,14]}})";
  EXPECT_EQ(header, little_endian(112, 8) + json + std::string(112 - json.size(), ' '));
  EXPECT_EQ(tensors[0].name, "lse");
}

TEST(Safetensors, RoundTripsEveryDtype) {
  for (const DType dtype :
       {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::boolean, DType::int32, DType::int64}) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {3}, {2, 3, 1, 2}, {2, 0}}) {
      verify::Tensor tensor(dtype, shape);
      for (std::int64_t i = 0; i < tensor.element_count(); ++i) tensor.set(i, dtype == DType::boolean ? 1 : double(i));
      std::vector<NamedTensor> tensors{{"x \"y\" \xc3\xa9", &tensor}};
      const std::string bytes = safetensors_header(tensors) + raw(tensor.storage());
      const MemorySource source = memory_file(bytes);
      const verify::Tensor read = Safetensors(source).read(tensors[0].name);
      EXPECT_EQ(read.dtype(), dtype);
      EXPECT_EQ(read.shape(), shape);
      EXPECT_EQ(read.storage(), tensor.storage());
    }
  }
}

TEST(Safetensors, RefusesTruncatedFilesAtEveryLength) {
  const std::string file = file_of(good, raw<float>({1, 2}));
  const MemorySource source = memory_file(file);
  EXPECT_EQ(Safetensors(source).read("t").get(1), 2);
  for (std::size_t length = 0; length < file.size(); ++length) refused(file.substr(0, length), "");
  refused(file + "x", "1 bytes follow the last tensor");
}

TEST(Safetensors, RefusesHeadersThatLieAboutTheirLength) {
  refused(little_endian(UINT64_MAX, 8) + "{}", "promises a header of 18446744073709551615 bytes, but 2 follow");
  refused(little_endian(3, 8) + "{}", "promises a header of 3 bytes, but 2 follow");
  refused(little_endian(0, 8), "does not begin with '{'");
  refused("PK\x03\x04", "4 bytes are too few");
  refused("\x93NUMPY\x01\x01 not safetensors", "not a safetensors file");
  const std::string padded = good + std::string((std::size_t{16} << 20) + 1, ' ');
  refused(file_of(padded, raw<float>({1, 2})), "expected at most 16777216");
}

TEST(Safetensors, RefusesHeadersThatAreNotTheFormats) {
  refused_header("[]", "does not begin with '{'");
  refused_header(" {}", "does not begin with '{'");
  refused_header("{", "not valid JSON");
  refused_header(good + "x", "not valid JSON");
  refused_header(good + "{}", "not valid JSON");
  refused_header(good + std::string(1, '\0') + "hidden", "zero byte");
  refused_header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],}})", "not valid JSON");
  refused_header("{\"t\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "not valid JSON");
  refused_header(R"({"t":3})", "expected an object");
  refused_header(R"({"t":null})", "expected an object");
  refused_header(R"({"t":[{}]})", "expected an object");
  refused_header(R"({"t":{}})", "expected dtype, shape and data_offsets");
  refused_header(R"({"t":{"dtype":"F32","shape":[2]}})", "expected dtype, shape and data_offsets");
  refused_header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "the key 'x'");
  refused_header(R"({"t":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", "'dtype' holds a number; expected a string");
  refused_header(R"({"t":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", "expected a string");
  refused_header(R"({"t":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "expected an array of sizes");
  refused_header(R"({"t":{"dtype":"F32","shape":{"0":2},"data_offsets":[0,8]}})", "expected an array of sizes");
  refused_header(R"({"t":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", "expected an array of sizes");
  refused_header(R"({"t":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "expected an array of sizes");
  refused_header(R"({"t":{"dtype":"F32","shape":[true],"data_offsets":[0,8]}})", "expected an array of sizes");
  refused_header(R"({"__metadata__":{"a":1}})", "expected strings only");
  refused_header(R"({"__metadata__":{"a":{"b":"c"}}})", "expected strings only");
  refused_header(R"({"__metadata__":{"a":null}})", "expected strings only");
  refused_header(R"({"__metadata__":{"a":NaN}})", "not valid JSON");
  refused_header(R"({"__metadata__":[]})", "expected an object");
}

TEST(Safetensors, RefusesNamesTwice) {
  const std::string tensor = R"("t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  refused_header("{" + tensor + "," + tensor + "}", "'t' appears twice");
  refused_header(R"({"t":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "'dtype' appears twice");
  refused_header(R"({"t":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", "'shape' appears twice");
  refused_header(R"({"__metadata__":{},"__metadata__":{}})", "'__metadata__' appears twice");
  refused_header(R"({"__metadata__":{"a":"1","a":"2"}})", "'a' appears twice");
  refused_header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\u0074":{}})", "'t' appears twice");
}

TEST(Safetensors, RefusesShapesThatCannotBe) {
  const auto shaped = [](const std::string& shape, const std::string& words) {
    refused_header(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,8]}})", words);
  };
  shaped("[-2]", "a negative number");
  shaped("[2.0]", "a number that is no 64-bit integer");
  shaped("[2e0]", "a number that is no 64-bit integer");
  shaped("[18446744073709551616]", "a number that is no 64-bit integer");
  shaped("[18446744073709551615]", "a size beyond 63 bits");
  shaped("[3]", "does not take the 8 bytes");
  shaped("[]", "does not take the 8 bytes");
  shaped("[0]", "does not take the 8 bytes");
  shaped("[4294967296, 4294967296]", "more elements than 64 bits can count");
  shaped("[4294967296, 4294967296, 0]", "more elements than 64 bits can count");
  shaped("[4611686018427387906]", "does not take the 8 bytes");  // times four it is 8 modulo 2^64
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  shaped(many + "]", "more than 64 dimensions");
}

TEST(Safetensors, RefusesOffsetsThatOverlapLeaveHolesOrLie) {
  const auto offsets = [](const std::string& pair, const std::string& words) {
    refused_header(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":)" + pair + "}}", words);
  };
  offsets("[8,0]", "do not lie in the 8 bytes of data");
  offsets("[0,16]", "do not lie in the 8 bytes of data");
  offsets("[0,18446744073709551615]", "do not lie in the 8 bytes of data");
  offsets("[18446744073709551608,18446744073709551615]", "do not lie in the 8 bytes of data");
  offsets("[4,8]", "with a hole after");
  offsets("[0,4]", "does not take the 4 bytes");
  offsets("[0]", "fewer than two numbers");
  offsets("[]", "fewer than two numbers");
  offsets("[0,8,8]", "a third number");
  offsets("[0,8.0]", "a number that is no 64-bit integer");
  offsets("[-8,0]", "a negative number");
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + first +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
  };
  refused_header(two("[0,4]", "[0,4]"), "inside the tensor before it");
  refused_header(two("[0,4]", "[2,6]"), "inside the tensor before it");
  refused(file_of(two("[0,4]", "[8,12]"), std::string(12, '\0')), "with a hole after the tensor before it");
  const std::string swapped = file_of(two("[4,8]", "[0,4]"), raw<float>({1, 2}));
  const MemorySource source = memory_file(swapped);
  EXPECT_EQ(Safetensors(source).read("a").get(0), 2);
}

TEST(Safetensors, RefusesDepthBombsAtOnce) {
  const std::size_t depth = 1000000;
  refused(file_of("{\"t\":" + std::string(depth, '['), ""), "expected an object");
  std::string nested = "{";
  for (int i = 0; i < 100000; ++i) nested += "\"a\":{";
  refused(file_of(nested, ""), "expected");
  refused(file_of("{\"t\":{\"shape\":" + std::string(depth, '['), ""), "expected an array of sizes");
}

TEST(Safetensors, OtherDtypesAreAnErrorOnlyWhenRead) {
  const std::string bytes = file_of(
      R"({"f":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"n":{"dtype":"NEW4","shape":[3],"data_offsets":[2,4]},)"
      R"("r":{"dtype":"BOOL","shape":[1,1,1,1,1],"data_offsets":[4,5]},"t":{"dtype":"BOOL","shape":[1],"data_offsets":[5,6]}})",
      std::string(6, '\1'));
  const MemorySource source = memory_file(bytes);
  const Safetensors file(source);
  EXPECT_EQ(file.read("t").get(0), 1);
  for (const char* name : {"f", "n", "r"}) EXPECT_THROW((void)file.read(name), FileError) << name;
  refused_header(R"({"t":{"dtype":"U16","shape":[2],"data_offsets":[0,8]}})", "does not take the 8 bytes");
}

TEST(Safetensors, MessagesHoldNoControlBytesAndStayShort) {
  refused_header(R"({"\u001b[31m\u0000)" + std::string(5000, 'x') + R"(":1})", "'\\x1b[31m\\x00xxx");
}

}  // namespace
}  // namespace tilewise::files
