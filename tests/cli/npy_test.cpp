#include "files/npy.hpp"

#include "memory_file.hpp"

namespace tilewise::files {
namespace {

std::string npy_file(const std::string& dict, const std::string& data, int major = 1, int minor = 0) {
  std::string file("\x93NUMPY", 6);
  file += static_cast<char>(major);
  file += static_cast<char>(minor);
  file += little_endian(dict.size(), major == 1 ? 2 : 4);
  return file + dict + data;
}

std::string dict_of(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

void refused(const std::string& file, const std::string& words) {
  expect_refused(file, words, [](const ByteSource& source) { read_npy(source); });
}

void refused_dict(const std::string& dict, const std::string& words) {
  refused(npy_file(dict, raw<float>({1, 2})), words);
}

TEST(Npy, ReadsWhatNumpyWrites) {
  // numpy.save of numpy.array([[1, 2, 3], [4, 5, 6]], dtype="<f4"), byte for byte.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.append(117 - header.size(), ' ');
  header += '\n';
  const std::string file = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + raw<float>({1, 2, 3, 4, 5, 6});
  const verify::Tensor tensor = read_npy(memory_file(file));
  EXPECT_EQ(tensor.dtype(), DType::float32);
  EXPECT_EQ(tensor.shape(), (std::vector<std::int64_t>{2, 3}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(tensor.get(i), i + 1);
}

TEST(Npy, WritesWhatNumpyWrites) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  dict.append(117 - dict.size(), ' ');
  const std::vector<std::int64_t> shape{2, 3};
  EXPECT_EQ(npy_header("f", DType::float32, shape), std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + "\n");
}

TEST(Npy, RoundTripsEveryDtypeAndRank) {
  const std::vector<std::vector<std::int64_t>> shapes{{}, {3}, {2, 3}, {1, 2, 3}, {2, 1, 3, 2}, {0, 4}, {2, 0, 3, 1}};
  for (const DType dtype :
       {DType::float64, DType::float32, DType::float16, DType::boolean, DType::int32, DType::int64}) {
    for (const auto& shape : shapes) {
      verify::Tensor tensor(dtype, shape);
      for (std::int64_t i = 0; i < tensor.element_count(); ++i) tensor.set(i, dtype == DType::boolean ? 1 : double(i));
      const std::string header = npy_header("f", dtype, shape);
      EXPECT_EQ(header.size() % 64, 0U);
      const verify::Tensor read = read_npy(memory_file(header + raw(tensor.storage())));
      EXPECT_EQ(read.dtype(), dtype);
      EXPECT_EQ(read.shape(), shape);
      EXPECT_EQ(read.storage(), tensor.storage());
    }
  }
}

TEST(Npy, ReadsEveryVersionAndSpelling) {
  const std::string data = raw<double>({1, 2});
  for (int major = 1; major <= 3; ++major) {
    EXPECT_EQ(read_npy(memory_file(npy_file(dict_of("<f8", "(2,)"), data, major))).get(1), 2) << major;
  }
  for (const char* dict : {R"({"shape":(2,),"descr":"<f8","fortran_order":False})",
                           "{ 'fortran_order' : False , 'shape' : ( 2 , ) , 'descr' : '<f8' }   \n",
                           "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}",
                           "\n{'descr': '<f8',\n 'fortran_order': False,\n 'shape': (2, 1, ), }\n\n"}) {
    EXPECT_EQ(read_npy(memory_file(npy_file(dict, data))).get(1), 2) << dict;
  }
  // A bool's bits are kept as they are: what is not zero is true.
  const verify::Tensor bools = read_npy(memory_file(npy_file(dict_of("b1", "(2,)"), std::string("\x00\x07", 2))));
  EXPECT_EQ(bools.storage(), (std::vector<std::byte>{std::byte{0}, std::byte{7}}));
}

TEST(Npy, RefusesTruncatedFilesAtEveryLength) {
  const std::string file = npy_file(dict_of("<f4", "(2,)"), raw<float>({1, 2}));
  read_npy(memory_file(file));
  for (std::size_t length = 0; length < file.size(); ++length) refused(file.substr(0, length), "");
  refused(file + '\0', "takes 8 bytes, but 9 follow");
  refused(file.substr(0, file.size() - 1), "takes 8 bytes, but 7 follow");
}

TEST(Npy, RefusesWhatIsNoNpyFile) {
  refused("", "0 bytes are too few");
  refused("PK\x03\x04 an .npz archive", "does not begin with");
  const std::string dict = dict_of("<f4", "(2,)");
  const std::string data = raw<float>({1, 2});
  refused(npy_file(dict, data, 4), "version 4.0; expected 1.0, 2.0 or 3.0");
  refused(npy_file(dict, data, 0), "version 0.0");
  refused(npy_file(dict, data, 1, 1), "version 1.1");
  refused(npy_file(dict, data, 255, 255), "version 255.255");
}

TEST(Npy, RefusesHeadersThatLieAboutTheirLength) {
  refused(std::string("\x93NUMPY\x01\x00\xff\xff", 10) + "{}", "promises a header of 65535 bytes, but 2 follow");
  refused(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + "{}", "promises a header of 4294967295 bytes");
  refused(npy_file(std::string(100000, ' '), "", 2), "header of 100000 bytes; expected at most");
}

TEST(Npy, RefusesOtherDtypesAndOrders) {
  refused_dict(dict_of(">f4", "(2,)"), "'>f4' is big-endian; expected <f8");
  refused_dict(dict_of("<c8", "(1,)"), "'<c8' is not supported; expected <f8");
  refused_dict(dict_of("|O", "(1,)"), "'|O' is not supported");
  refused_dict(dict_of("|u1", "(8,)"), "'|u1' is not supported");
  refused_dict(dict_of("=f4", "(2,)"), "'=f4' is not supported");
  refused_dict(dict_of("", "(2,)"), "'' is not supported");
  refused_dict(dict_of("\x1b[31m", "(2,)"), "'\\x1b[31m' is not supported");
  refused_dict("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "structured dtypes");
  refused_dict("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", "fortran_order is True; expected C order");
}

TEST(Npy, RefusesShapesThatCannotBe) {
  refused_dict(dict_of("<f4", "(-2,)"), "negative size");
  refused_dict(dict_of("<f4", "(-0,)"), "negative size");
  refused_dict(dict_of("<f4", "(2)"), "expected a tuple");
  refused_dict(dict_of("<f4", "2"), "expected '('");
  refused_dict(dict_of("<f4", "(2.0,)"), "expected ',' or ')'");
  refused_dict(dict_of("<f4", "(1e3,)"), "expected ',' or ')'");
  refused_dict(dict_of("<f4", "(0x2,)"), "expected ',' or ')'");
  refused_dict(dict_of("<f4", "(02,)"), "leading zeros");
  refused_dict(dict_of("<f4", "(2 2,)"), "expected ',' or ')'");
  refused_dict(dict_of("<f4", "(,)"), "expected a size");
  refused_dict(dict_of("<f4", "(True,)"), "expected a size");
  refused_dict(dict_of("<f4", "(99999999999999999999,)"), "size beyond 64 bits");
  refused_dict(dict_of("<f4", "(9223372036854775807, 3)"), "more elements than 64 bits can count");
  refused_dict(dict_of("<f4", "(4294967296, 4294967296, 0)"), "more elements than 64 bits can count");
  refused_dict(dict_of("<f8", "(9223372036854775807,)"), "more elements than 64 bits can count");
  refused_dict(dict_of("<f4", "(4611686018427387905,)"), "more elements than 64 bits can count");
  refused_dict(dict_of("<f4", "(4611686018427387903,)"), "takes 18446744073709551612 bytes");
  refused_dict(dict_of("<f4", "(1000000000000,)"), "takes 4000000000000 bytes, but 8 follow");
  refused_dict(dict_of("<f4", "(1, 1, 1, 1, 2)"), "rank 5; expected at most 4");
}

TEST(Npy, RefusesMalformedDicts) {
  refused_dict("", "expected '{'");
  refused_dict("{}", "must hold 'descr', 'fortran_order' and 'shape'");
  refused_dict("{'descr': '<f4', 'shape': (2,)}", "must hold");
  refused_dict("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "'descr' appears twice");
  refused_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "unknown key 'x'");
  refused_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + [1]", "the end of the header");
  refused_dict("{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", "");
  refused_dict("{'descr: <f4", "the end of a string");
  refused_dict("{'descr' '<f4'}", "expected ':'");
  refused_dict("{'descr': '<f4' 'fortran_order': False}", "expected '}'");
  refused_dict("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "True or False");
  refused_dict(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\0\0", 57), "end of the header");
}

TEST(Npy, WritesNoBfloat16) {
  const std::vector<std::int64_t> shape{2};
  EXPECT_THROW(npy_header("f.npy", DType::bfloat16, shape), FileError);
}

}  // namespace
}  // namespace tilewise::files
