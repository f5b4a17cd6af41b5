// Documents for language models: whole documents, and only the tokens that are marked are targets
// (docs/reference/data.md, "Documents").
#ifndef MUSTER_WORKER_DATA_TOKENS_DOCUMENTS_DATASET_H_
#define MUSTER_WORKER_DATA_TOKENS_DOCUMENTS_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

// A sample is several documents that fit into the context (best_fit.h), or one.
enum class Packed { kBestFit, kEach };

// A document of n tokens has n - 1 inputs and targets, or n for a model that shifts its targets by
// one itself, and that leaves out the first target. A row of a batch is as long as its longest
// sample, or, without InputSpec::documents, as the context. Fillers at the end of a row are a
// document of its own without targets.
//
// Opens the files and reads all bounds. `spec.ignored` must be set. Errors: NOT_FOUND etc. for
// files that cannot be opened, DATA_LOSS for damaged ones; INVALID_ARGUMENT:
// - an empty list, a file of another kind, or no document at all;
// - a document with more inputs than the model's context, or without any target;
// - a tokenizer with more tokens than the model; files of two tokenizers;
// - a model that does not take tokens, or, with kBestFit, that cannot keep documents apart.
//
// Errors of Check and Read besides Dataset's: INVALID_ARGUMENT for a token that is not below
// `spec.vocab_size`; FAILED_PRECONDITION for a file that has been shortened.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDocuments(const std::vector<std::string>& paths,
                                                       Packed packed, const InputSpec& spec);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKENS_DOCUMENTS_DATASET_H_
