#include "worker/train/predict/prediction_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "common/exports/target.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kUuid[] = "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d";

class PredictionFileTest : public testing::Test {
 protected:
  PredictionTarget Target(bool overwrite = false, int64_t generation = 1) const {
    return {.path = folder_.Path("p.npy"),
            .overwrite = overwrite,
            .job_name = name_,
            .identity = {.job = "job", .generation = generation, .incarnation = kUuid},
            .inputs = inputs_};
  }
  absl::StatusOr<PredictionFile::Placed> Write(const std::string& contents, bool overwrite = false,
                                               files::Disk& disk = files::Disk::Real()) {
    ASSIGN_OR_RETURN(const auto file,
                     PredictionFile::Create(Target(overwrite), contents.size(), disk));
    // The bytes are written in reverse order.
    for (size_t i = contents.size(); i-- > 0;) {
      RETURN_IF_ERROR(file->WriteAt(i, std::string_view(contents).substr(i, 1)));
    }
    return file->Place();
  }
  std::string Contents() const { return *files::ReadFile(folder_.Path("p.npy")); }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  files::TempDir folder_;
  std::string name_ = "mine";
  exports::Inputs inputs_;
};

TEST_F(PredictionFileTest, AFileAppearsWhenItIsComplete) {
  {
    const auto file = PredictionFile::Create(Target(), 3, files::Disk::Real());
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->WriteAt(0, "abc").ok());
    EXPECT_THAT(Names(), ElementsAre(HasSubstr(".p.npy.job-g1-")));
  }
  EXPECT_THAT(Names(), IsEmpty()) << "it was not placed";
  const auto placed = Write("abc");
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(*placed, PredictionFile::Placed::kNew);
  EXPECT_EQ(Contents(), "abc");
  EXPECT_THAT(Names(), ElementsAre("p.npy"));
}

TEST_F(PredictionFileTest, AFileWithTheSameBytesIsASuccessAndAnotherOneAnError) {
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("p.npy"), "abc").ok());
  EXPECT_EQ(*Write("abc"), PredictionFile::Placed::kSame);
  for (const char* other : {"abd", "abcd", "ab", "xbc"}) {
    const absl::Status refused = Write(other).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << other;
    EXPECT_THAT(Message(refused), HasSubstr("other contents: " + folder_.Path("p.npy") +
                                            " exists; choose another output"));
    EXPECT_EQ(Contents(), "abc");
  }
  EXPECT_EQ(*Write("abd", /*overwrite=*/true), PredictionFile::Placed::kNew);
  EXPECT_EQ(Contents(), "abd");
  EXPECT_THAT(Names(), ElementsAre("p.npy"));
}

TEST_F(PredictionFileTest, OfTwoFilesThatAreCompleteAtTheSameTimeOneGetsTheName) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ready = 0, placed = 0, refused = 0;
    const auto write = [&](const std::string& job) {
      PredictionTarget target = Target();
      target.identity.job = target.job_name = job;
      const auto file = PredictionFile::Create(target, job.size(), files::Disk::Real());
      ASSERT_TRUE(file.ok() && (*file)->WriteAt(0, job).ok());
      ++ready;
      while (ready < 2) std::this_thread::yield();
      const auto end = (*file)->Place();
      (end.ok() ? placed : refused)++;
      EXPECT_TRUE(end.ok() || absl::IsAlreadyExists(end.status())) << end.status();
      if (end.ok()) {
        EXPECT_EQ(Contents(), job);
      }
    };
    std::thread other(write, "two");
    write("one");
    other.join();
    ASSERT_EQ(placed, 1);
    ASSERT_EQ(refused, 1);
    EXPECT_THAT(Names(), ElementsAre("p.npy"));
    std::filesystem::remove(folder_.Path("p.npy"));
  }
}

TEST_F(PredictionFileTest, TheFirstGenerationRefusesAFileAtItsStart) {
  EXPECT_TRUE(PreparePredictionFile(Target()).ok());
  EXPECT_THAT(Names(), IsEmpty()) << "of the trial nothing is left";
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("p.npy"), "abc").ok());
  EXPECT_EQ(PreparePredictionFile(Target()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(PreparePredictionFile(Target(/*overwrite=*/true)).ok());
  EXPECT_TRUE(PreparePredictionFile(Target(false, 2)).ok()) << "it may be its own";
  EXPECT_EQ(Contents(), "abc");
}

// The contents may differ after other training: `resume --from`, or sums on a GPU.
TEST_F(PredictionFileTest, WhatAJobOfTheSameNameWroteIsReplaced) {
  ASSERT_TRUE(Write("abc").ok());
  EXPECT_EQ(*Write("abc"), PredictionFile::Placed::kSame);
  EXPECT_EQ(*Write("abd"), PredictionFile::Placed::kNew);
  EXPECT_EQ(Contents(), "abd");
  EXPECT_TRUE(PreparePredictionFile(Target()).ok());
  name_ = "another";
  EXPECT_EQ(PreparePredictionFile(Target()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Write("abe").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Contents(), "abd");
}

TEST_F(PredictionFileTest, WhatSomebodyChangedSinceIsNotReplaced) {
  ASSERT_TRUE(Write("abc").ok());
  std::ofstream(folder_.Path("p.npy"), std::ios::app) << "notes";
  EXPECT_EQ(Write("abd").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Contents(), "abcnotes");
}

TEST_F(PredictionFileTest, WhatIsNoRegularFileOrReadByTheJobIsNeverReplaced) {
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("data"), "abc").ok());
  const std::string path = folder_.Path("p.npy");
  const std::function<void()> things[] = {
      [&] { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); },
      [&] { ASSERT_EQ(symlink("data", path.c_str()), 0); },
      [&] { ASSERT_EQ(symlink("nothing", path.c_str()), 0); },
      [&] { std::filesystem::create_directory(path); },
      [&] { std::filesystem::create_hard_link(folder_.Path("data"), path); },
  };
  inputs_ = {{"data.predict.npy.inputs[0]", folder_.Path("data")}};
  for (const auto& thing : things) {
    thing();
    for (const bool overwrite : {false, true}) {
      EXPECT_EQ(PreparePredictionFile(Target(overwrite)).code(),
                absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(PreparePredictionFile(Target(overwrite, 2)).code(),
                absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(Write("new", overwrite).status().code(), absl::StatusCode::kFailedPrecondition);
    }
    std::filesystem::remove(path);
  }
  EXPECT_EQ(*files::ReadFile(folder_.Path("data")), "abc");
}

TEST_F(PredictionFileTest, WhatEarlierGenerationsLeftIsRemoved) {
  const auto left = [&](int generation) {
    const std::string name =
        ".p.npy.job-g" + std::to_string(generation) + "-" + std::string(kUuid) + ".tmp";
    EXPECT_TRUE(files::WriteAtomically(folder_.Path(name), "half").ok());
    return name;
  };
  left(1);
  left(2);
  const std::string later = left(4);
  ASSERT_TRUE(PreparePredictionFile(Target(false, 3)).ok());
  EXPECT_THAT(Names(), ElementsAre(later));
}

TEST_F(PredictionFileTest, AFolderThatCannotBeMadeIsFoundAtTheStart) {
  PredictionTarget target = Target();
  target.path = folder_.Path("new/folder/p.npy");
  EXPECT_TRUE(PreparePredictionFile(target).ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder_.Path("new/folder")));
  ASSERT_TRUE(files::WriteAtomically(folder_.Path("file"), "x").ok());
  target.path = folder_.Path("file/p.npy");
  const absl::Status status = PreparePredictionFile(target);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr(folder_.Path("file")));
}

// A disk on which one call fails.
class FailingDisk : public files::Disk {
 public:
  explicit FailingDisk(const std::string& call) : call_(call) {}
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    return call_ == "write" ? Full(path) : Real().Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    return call_ == "sync" ? Full(path) : Real().Sync(fd, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return call_ == "rename" ? Full(to) : Real().Rename(from, to);
  }

 private:
  static absl::Status Full(const std::string& path) {
    return absl::ResourceExhaustedError(path + ": No space left on device");
  }
  const std::string call_;
};

TEST_F(PredictionFileTest, AnOldFileIsUnchangedAndNothingIsLeftIfACallFails) {
  ASSERT_TRUE(Write("old").ok());
  for (const char* call : {"write", "sync", "rename"}) {
    FailingDisk disk(call);
    const absl::Status status = Write("new!", /*overwrite=*/true, disk).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << call;
    EXPECT_EQ(Contents(), "old") << call;
    EXPECT_THAT(Names(), ElementsAre("p.npy")) << call;
  }
}

TEST(PredictionHeader, OfSafetensorsNamesTheArray) {
  const PredictionArray array{.dtype = safetensors::DType::kI64, .shape = {3, 4}};
  EXPECT_EQ(array.row_bytes(), 32u);
  EXPECT_EQ(array.bytes(), 96u);
  const auto header = PredictionHeader("/p.safetensors", "classes", array);
  ASSERT_TRUE(header.ok()) << header.status();
  const std::string file = *header + std::string(96, '\0');
  const auto read =
      safetensors::ParseHeader(reinterpret_cast<const uint8_t*>(file.data()), file.size(), "file");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->entries.size(), 1u);
  EXPECT_EQ(read->entries[0].name, "classes");
  EXPECT_EQ(read->entries[0].dtype, safetensors::DType::kI64);
  EXPECT_THAT(read->entries[0].shape, ElementsAre(3, 4));
  EXPECT_EQ(read->data_offset, header->size());
}

}  // namespace
}  // namespace muster::train
