#include "worker/models/torchscript/checked_reader.h"

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "common/files/mapped_file.h"
#include "common/files/temp_dir.h"
#include "gtest/gtest.h"

namespace muster::models {
namespace {

std::string Read(const CheckedReader& reader, uint64_t pos, size_t n) {
  std::string text(n, '?');
  text.resize(reader.read(pos, text.data(), n, ""));
  return text;
}

TEST(CheckedReader, WhatWasCheckedIsLoadedAlthoughTheFileWasChanged) {
  const files::TempDir folder;
  const std::string path = folder.Path("file");
  std::ofstream(path) << "checked, unread";
  auto file = files::MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  CheckedReader reader(std::make_shared<const files::MappedFile>(*std::move(file)));
  EXPECT_EQ(Read(reader, 0, 7), "checked");
  reader.EndCheck();
  std::fstream(path, std::ios::in | std::ios::out) << "CHANGED, CHANGE";
  EXPECT_EQ(Read(reader, 0, 7), "checked");
  // The file has changed, so the reader holds no copy of the whole file.
  EXPECT_EQ(Read(reader, 9, 100), "CHANGE");
  EXPECT_EQ(reader.last(), (std::pair<uint64_t, size_t>(9, 6)));
  EXPECT_EQ(Read(reader, 100, 1), "");
}

}  // namespace
}  // namespace muster::models
