#include "coordinator/service/transfer_core.h"

#include "coordinator/membership/refusal.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using Piece = TransferCore::Piece;

constexpr absl::Time kStart = absl::UnixEpoch();

TransferCore::Actions Data(TransferCore& core, Piece piece = Piece::kData) {
  return core.Arrived(piece, absl::OkStatus(), kStart);
}

TEST(TransferCore, TheNextPieceIsReadWhenTheClientHasTakenTheOneBefore) {
  TransferCore core("n", kStart);
  core.AgentCame(kStart);
  const auto arrived = Data(core);
  EXPECT_TRUE(arrived.write);
  EXPECT_FALSE(arrived.read);
  const auto written = core.Written(true, kStart);
  EXPECT_TRUE(written.read);
  EXPECT_FALSE(written.end_client.has_value());
}

TEST(TransferCore, BothStreamsEndWellWhenTheClientHasTakenTheLastPiece) {
  TransferCore core("n", kStart);
  core.AgentCame(kStart);
  const auto last = Data(core, Piece::kLast);
  EXPECT_TRUE(last.write);
  EXPECT_FALSE(last.end_agent.has_value()) << "the client may not have taken it yet";
  const auto written = core.Written(true, kStart);
  EXPECT_EQ(written.end_client, absl::OkStatus());
  EXPECT_EQ(written.end_agent, absl::OkStatus());
  EXPECT_FALSE(written.read);
  EXPECT_TRUE(core.ended());
}

TEST(TransferCore, TheAgentsFailureIsTheClients) {
  TransferCore core("n", kStart);
  core.AgentCame(kStart);
  const auto actions = core.Arrived(Piece::kFailure, absl::NotFoundError("removed"), kStart);
  EXPECT_EQ(actions.end_client, absl::NotFoundError("removed"));
  EXPECT_EQ(actions.end_agent, absl::OkStatus());
  EXPECT_FALSE(actions.write);
}

// Two gRPC operations on one stream must not overlap.
TEST(TransferCore, TheClientsStreamEndsOnlyWhenNothingIsOnItsWay) {
  TransferCore core("n", kStart);
  core.AgentCame(kStart);
  Data(core);
  const auto left = core.AgentLeft();
  EXPECT_FALSE(left.end_client.has_value());
  EXPECT_TRUE(left.end_agent.has_value());
  const auto written = core.Written(true, kStart);
  ASSERT_TRUE(written.end_client.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*written.end_client)) << "the client tries again";
  EXPECT_EQ(RefusalReason(*written.end_client), "DOWNLOAD_BROKEN");
  EXPECT_FALSE(written.read);
}

TEST(TransferCore, TheAgentsStreamEndsOnlyWhenNothingIsReadFromIt) {
  for (const bool another_piece : {true, false}) {
    TransferCore core("n", kStart);
    core.AgentCame(kStart);
    Data(core);
    core.Written(true, kStart);  // the next piece is read
    const auto left = core.ClientLeft();
    EXPECT_TRUE(left.end_client.has_value());
    EXPECT_FALSE(left.end_agent.has_value());
    const auto actions = another_piece ? Data(core) : core.NothingArrived();
    EXPECT_TRUE(actions.end_agent.has_value());
    EXPECT_FALSE(actions.write || actions.read || actions.end_client);
    EXPECT_FALSE(core.NothingArrived().end_agent.has_value());
  }
}

TEST(TransferCore, AnAgentThatStopsBeforeTheEndBreaksTheTransfer) {
  TransferCore core("n", kStart);
  core.AgentCame(kStart);
  Data(core);
  core.Written(true, kStart);
  const auto actions = core.NothingArrived();
  ASSERT_TRUE(actions.end_client.has_value() && actions.end_agent.has_value());
  EXPECT_EQ(actions.end_client->message(), "the agent of node 'n' stopped sending before the end");
}

TEST(TransferCore, EachStreamEndsOnce) {
  TransferCore core("n", kStart);
  core.AgentCame(kStart);
  EXPECT_TRUE(core.ClientLeft().end_agent.has_value());
  for (const auto& actions : {core.ClientLeft(), core.AgentLeft(), core.End(absl::AbortedError("")),
                              core.Ticked(kStart + absl::Hours(1)), Data(core, Piece::kLast)}) {
    EXPECT_FALSE(actions.write || actions.read || actions.end_client || actions.end_agent);
  }
}

TEST(TransferCore, AnAgentThatComesLateOrTwiceIsRefused) {
  TransferCore core("n", kStart);
  EXPECT_FALSE(core.AgentCame(kStart).end_agent.has_value());
  EXPECT_TRUE(core.AgentCame(kStart).end_agent.has_value());
  TransferCore left("n", kStart);
  EXPECT_FALSE(left.ClientLeft().end_agent.has_value()) << "there is none";
  EXPECT_TRUE(absl::IsNotFound(left.AgentCame(kStart).end_agent.value_or(absl::OkStatus())));
}

TEST(TransferCore, EveryWaitHasABoundAndNamesTheOneThatIsSlow) {
  TransferCore core("n", kStart);
  EXPECT_FALSE(core.Ticked(kStart + absl::Seconds(19)).end_client.has_value());
  const auto never_came = core.Ticked(kStart + TransferCore::kBegin);
  ASSERT_TRUE(never_came.end_client.has_value());
  EXPECT_EQ(never_came.end_client->message(), "the agent of node 'n' sent nothing for 20s");

  TransferCore slow("n", kStart);
  slow.AgentCame(kStart);
  Data(slow);
  EXPECT_FALSE(slow.Ticked(kStart + absl::Seconds(59)).end_agent.has_value());
  const auto stuck = slow.Ticked(kStart + TransferCore::kMove);
  ASSERT_TRUE(stuck.end_agent.has_value());
  EXPECT_EQ(stuck.end_agent->message(), "the client took nothing for 1m");

  TransferCore silent("n", kStart);
  silent.AgentCame(kStart);
  Data(silent);
  silent.Written(true, kStart + absl::Seconds(30));
  EXPECT_FALSE(silent.Ticked(kStart + absl::Seconds(89)).end_client.has_value());
  const auto hangs = silent.Ticked(kStart + absl::Seconds(90));
  ASSERT_TRUE(hangs.end_client.has_value());
  EXPECT_EQ(hangs.end_client->message(), "the agent of node 'n' sent nothing for 1m");
}

}  // namespace
}  // namespace muster::service
