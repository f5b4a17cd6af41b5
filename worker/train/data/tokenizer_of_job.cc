#include "worker/train/data/tokenizer_of_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status.h"
#include "common/tokenizer/sidecar.h"
#include "worker/checkpoint/exchange.h"

namespace muster::train {
namespace {

// The first set whose tokenizer is known; if none is, its tokenizer is unknown, too.
absl::StatusOr<TokenizedSet> FirstKnown(const std::vector<TokenizedSet>& sets) {
  TokenizedSet first;
  for (const TokenizedSet& set : sets) {
    RETURN_IF_ERROR(
        tokenizer::CheckSameTokenizer(first.tokenizer, first.name, set.tokenizer, set.name));
    if (!first.tokenizer.known()) first = set;
  }
  return first;
}

}  // namespace

absl::StatusOr<tokenizer::Source> TokenizerOfJob(const std::vector<TokenizedSet>& sets,
                                                 comm::Communicator& communicator) {
  ASSIGN_OR_RETURN(const TokenizedSet mine, FirstKnown(sets));
  const std::string text =
      mine.tokenizer.known()
          ? absl::StrJoin({mine.name, mine.tokenizer.hash, mine.tokenizer.path}, "\n")
          : "";
  ASSIGN_OR_RETURN(const auto texts,
                   checkpoint::GatherTexts(communicator, text, "the tokenizers", 0));
  std::vector<TokenizedSet> of_ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    const std::vector<std::string> parts = absl::StrSplit(texts[rank], absl::MaxSplits('\n', 2));
    of_ranks.push_back({absl::StrCat(parts[0], " of rank ", rank), {parts[2], parts[1]}});
  }
  ASSIGN_OR_RETURN(TokenizedSet all, FirstKnown(of_ranks));
  return std::move(all.tokenizer);
}

}  // namespace muster::train
