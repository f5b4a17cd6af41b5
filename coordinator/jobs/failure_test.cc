#include "coordinator/jobs/failure.h"

#include <gtest/gtest.h>

namespace muster::jobs {
namespace {

FailureNote Note(uint32_t rank, FailureKind kind, const std::string& reason,
                 uint64_t generation = 1) {
  return {.generation = generation, .rank = rank, .node = "n", .kind = kind, .reason = reason};
}

TEST(RootCause, IsAbsentWithoutNotes) { EXPECT_FALSE(RootCause({}).has_value()); }

TEST(RootCause, IsTheFirstThatIsNoConsequence) {
  const auto failure = RootCause({Note(0, FailureKind::kConsequence, "peer closed"),
                                  Note(2, FailureKind::kLost, "killed by signal 9"),
                                  Note(1, FailureKind::kReported, "loss is nan")});
  EXPECT_EQ(failure->root.rank, 2);
  EXPECT_EQ(failure->consequences,
            (std::vector<std::string>{"rank 0: peer closed", "rank 1: loss is nan"}));
}

TEST(RootCause, AnUnexplainedExitCodeIsACauseOnlyWhereNothingSurerIsKnown) {
  EXPECT_EQ(RootCause({Note(0, FailureKind::kExitCode, "exited with code 1"),
                       Note(1, FailureKind::kLost, "killed by signal 9")})
                ->root.rank,
            1);
  EXPECT_EQ(RootCause({Note(0, FailureKind::kConsequence, "peer closed"),
                       Note(1, FailureKind::kExitCode, "exited with code 1")})
                ->root.rank,
            1);
}

TEST(RootCause, IsTheFirstConsequenceWhereThereIsNothingElse) {
  EXPECT_EQ(
      RootCause({Note(1, FailureKind::kConsequence, "a"), Note(0, FailureKind::kConsequence, "b")})
          ->root.rank,
      1);
}

TEST(RootCause, ShowsAtMostThreeConsequences) {
  std::vector<FailureNote> notes{Note(0, FailureKind::kLost, "x")};
  for (uint32_t rank = 1; rank < 8; ++rank) {
    notes.push_back(Note(rank, FailureKind::kConsequence, "y"));
  }
  const auto failure = RootCause(notes);
  ASSERT_EQ(failure->consequences.size(), 4);
  EXPECT_EQ(failure->consequences.back(), "and 4 more");
}

TEST(AddNote, OneRankHasOneNoteTheSurerWithTheLogTail) {
  std::vector<FailureNote> notes;
  AddNote(&notes, Note(0, FailureKind::kConsequence, "peer closed"));
  FailureNote exit = Note(0, FailureKind::kExitCode, "exited with code 1");
  exit.log_tail = "tail";
  AddNote(&notes, exit);
  ASSERT_EQ(notes.size(), 1);
  EXPECT_EQ(notes[0].kind, FailureKind::kExitCode);
  AddNote(&notes, Note(0, FailureKind::kReported, "loss is nan"));
  EXPECT_EQ(notes[0].reason, "loss is nan");
  EXPECT_EQ(notes[0].log_tail, "tail");
}

TEST(AddNote, ANewGenerationsFailureReplacesThoseOfTheOneBefore) {
  std::vector<FailureNote> notes;
  AddNote(&notes, Note(0, FailureKind::kLost, "a", 1));
  AddNote(&notes, Note(1, FailureKind::kLost, "b", 2));
  ASSERT_EQ(notes.size(), 1);
  EXPECT_EQ(notes[0].reason, "b");
}

}  // namespace
}  // namespace muster::jobs
