// The decoder that Llama (Touvron et al. 2023), Mistral, Qwen 2 and 3 and SmolLM share: rotary
// positions, root mean square norms, SwiGLU, grouped-query attention. Names and layouts are those
// of Hugging Face's LlamaForCausalLM; q_norm and k_norm are those of Qwen3ForCausalLM.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_DECODER_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_DECODER_H_

#include <cstdint>
#include <memory>

#include "common/huggingface/decoder_shape.h"
#include "worker/models/language/language_model.h"
#include "worker/models/model.h"

namespace muster::models {

using huggingface::DecoderShape;

// Makes a decoder with initial values, which depend only on (seed, parameter name).
// tokens int64 [B, C], C <= context -> logits [B, C, vocab_size]. float32, unless autocast says
// otherwise. In a generation (key_value_cache.h) [B, 1, vocab_size]: of each row's last token.
std::unique_ptr<Model> CreateDecoder(const DecoderShape& shape, ModelIdentity identity,
                                     uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_DECODER_H_
