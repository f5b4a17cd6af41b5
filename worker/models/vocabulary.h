// The units of a language model that have one row for each token of the vocabulary.
#ifndef MUSTER_WORKER_MODELS_VOCABULARY_H_
#define MUSTER_WORKER_MODELS_VOCABULARY_H_

#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"

namespace muster::models {

// An embedding, a head, or both if they are tied; then it is called twice in a forward. Its only
// parameter is NAME.weight, [vocabulary, width].
class Vocabulary : public Unit {
 public:
  Vocabulary(const std::string& name, int64_t tokens, int64_t width, double deviation,
             uint64_t seed);

  // Tokens, int64 [B, C]: their embeddings [B, C, width]. Numbers [B, C, width]: logits
  // [B, C, vocabulary].
  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override;

  // The gradient of an embedding does not depend on its values.
  bool BackwardReadsParameters(const Tensors& inputs) const override;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_VOCABULARY_H_
