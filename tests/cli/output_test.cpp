#include "files/output.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tilewise::files {
namespace {

namespace fs = std::filesystem;

class OutputTest : public ::testing::Test {
 protected:
  OutputTest() {
    std::string pattern = (fs::temp_directory_path() / "tilewise_output_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~OutputTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(path(name), std::ios::binary).rdbuf();
    return text.str();
  }
  void put(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  void write(const std::string& name, const std::string& text) const {
    const OutputFile file{path(name), {bytes_of(text)}};
    write_files(std::span(&file, 1));
  }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}));
  }

  fs::path folder_;
};

TEST_F(OutputTest, WritesAndReplaces) {
  write("a", "first");
  EXPECT_EQ(content("a"), "first");
  write("a", "2");
  EXPECT_EQ(content("a"), "2");
  write("a", "");
  EXPECT_EQ(content("a"), "");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputTest, KeepsPermissionsOfWhatItReplaces) {
  put("a", "old");
  ::chmod(path("a").c_str(), 0640);
  write("a", "new");
  struct stat status{};
  ASSERT_EQ(::stat(path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

TEST_F(OutputTest, FollowsLinks) {
  put("target", "old");
  fs::create_symlink(path("target"), path("link"));
  write("link", "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content("target"), "new");
  EXPECT_TRUE(same_place(path("link"), path("target")));
  EXPECT_TRUE(same_place(path("x"), path("./x")));
  EXPECT_FALSE(same_place(path("x"), path("y")));
}

TEST_F(OutputTest, NothingAppearsOrChangesWhenOneFileFails) {
  put("a", "old");
  fs::create_directory(path("folder"));
  const OutputFile files[] = {{path("a"), {bytes_of("new")}}, {path("folder"), {bytes_of("new")}}};
  EXPECT_THROW(write_files(files), FileError);
  EXPECT_EQ(content("a"), "old");
  EXPECT_EQ(entries(), 2U);
}

TEST_F(OutputTest, NothingAppearsOrChangesWhenTheDiskIsFull) {
  put("a", "old");
  struct rlimit saved{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &saved), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = saved;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text(5000, 'x');
  const OutputFile files[] = {{path("a"), {bytes_of("new")}}, {path("b"), {bytes_of(text)}}};
  EXPECT_THROW(write_files(files), FileError);
  ::setrlimit(RLIMIT_FSIZE, &saved);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(content("a"), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputTest, RefusesPlacesThatAreNoFile) {
  EXPECT_THROW(check_writable("/dev/null"), FileError);
  EXPECT_THROW(check_writable(folder_.string()), FileError);
  EXPECT_THROW(check_writable(path("missing/a")), FileError);
  EXPECT_THROW(check_writable(path("missing/")), FileError);
  EXPECT_THROW(check_writable(""), FileError);
  EXPECT_THROW(check_writable(std::string("a\0b", 3)), FileError);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THROW(check_writable(path("pipe")), FileError);
  EXPECT_NO_THROW(check_writable(path("new")));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(OutputTest, SourcesAreRegularFiles) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& name :
       {path("pipe"), folder_.string(), std::string("/dev/zero"), path("missing"), std::string()}) {
    EXPECT_THROW(FileSource{name}, FileError) << name;
  }
  put("a", "text");
  const FileSource source(path("a"));
  EXPECT_EQ(source.size(), 4U);
  std::byte bytes[5];
  source.read(1, std::span(bytes, 3));
  EXPECT_EQ(bytes[0], std::byte{'e'});
  EXPECT_THROW(source.read(0, bytes), FileError);
  EXPECT_THROW(source.read(UINT64_MAX, std::span(bytes, 1)), FileError);
  put("a", "t");  // another process cuts the file
  EXPECT_THROW(source.read(1, std::span(bytes, 3)), FileError);
}

}  // namespace
}  // namespace tilewise::files
