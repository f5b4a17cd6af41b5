#include "worker/models/allowed_operators.h"

#include <set>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace muster::models {
namespace {

// Operators of the namespace prim: the language.
constexpr char kLanguage[] = R"(
CallFunction CallMethod Constant CreateObject DictConstruct Enter EnumName EnumValue Exit GetAttr
HasAttr If ImplicitTensorToNum ListConstruct ListUnpack Loop ModuleContainerIndex NumToTensor Print
RaiseException SetAttr StringIndex TupleConstruct TupleIndex TupleSlice TupleUnpack Uninitialized
abs annotate data device dtype grad index is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps
is_mtia is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu isinstance itemsize
layout max min name nbytes rangelist requires_grad shape tolist type unchecked_cast
unchecked_unwrap_optional
)";

// Operators of the namespace aten, without the "_" of in-place forms.
constexpr char kComputing[] = R"(
__and__ __contains__ __derive_index __getitem__ __iand__ __ilshift__ __interpolate __ior__
__irshift__ __is__ __isnot__ __ixor__ __lshift__ __not__ __or__ __range_length
__round_to_zero_floordiv __rshift__ __upsample __upsample_bilinear __upsample_nearest __xor__
_adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _cast_Byte _cast_Char _cast_Double
_cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _conj _convolution _convolution_mode
_dim_arange _euclidean_dist _fake_quantize_learnable_per_channel_affine
_fake_quantize_learnable_per_tensor_affine _grad_sum_to_size _infer_size _is_all_true _is_any_true
_list_to_tensor _log_softmax _masked_softmax _native_multi_head_attention _nested_tensor_from_mask
_nested_tensor_from_mask_left_aligned _no_grad_embedding_renorm_ _no_grad_fill_ _no_grad_normal_
_no_grad_uniform_ _no_grad_zero_ _pack_padded_sequence _pad_circular _pad_enum _pad_packed_sequence
_safe_softmax _sample_dirichlet _scaled_dot_product_attention_math _set_item _shape_as_tensor
_size_if_not_equal _softmax _sparse_log_softmax _sparse_mm _sparse_softmax _sparse_sum _stack
_standard_gamma _tensor_to_list _to_copy _transformer_encoder_layer_fwd _trilinear _unique _unique2
_unsafe_view _unwrap_optional _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
_weight_norm_interface abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv
addcmul addmm addmv addr adjoint affine_grid_generator alias all allclose alpha_dropout amax amin
aminmax angle any append arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
argsort argwhere as_strided as_tensor asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d
avg_pool1d avg_pool2d avg_pool3d baddbmm bartlett_window batch_norm bernoulli bilinear bin
binary_cross_entropy binary_cross_entropy_with_logits bincount binomial bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag
bmm Bool broadcast_shapes broadcast_tensors broadcast_to bucketize capitalize cartesian_prod cat
cauchy cdist ceil celu center chain_matmul chalf channel_shuffle cholesky cholesky_inverse
cholesky_solve chr chunk clamp clamp_max clamp_min clear clip clone coalesce col2im column_stack
combinations Complex complex ComplexImplicit concat concatenate conj conj_physical constant_pad_nd
contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution copy
copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity count count_nonzero cov cpu cross
cross_entropy_loss ctc_loss cuda cummax cummin cumprod cumsum cumulative_trapezoid data deg2rad
degrees Delete dense_dim det detach device diag diag_embed diagflat diagonal diagonal_scatter dict
diff digamma dim dist div divide divmod dot dropout dsplit dstack einsum element_size elu embedding
embedding_bag embedding_renorm empty empty_like endswith eq equal erf erfc erfinv exp exp2 expand
expand_as expandtabs expm1 exponential extend eye fabs factorial fake_quantize_per_channel_affine
fake_quantize_per_tensor_affine feature_alpha_dropout feature_dropout fft_fft fft_fft2 fft_fftfreq
fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift
fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq
fft_rfftn fill fill_diagonal find fix flatten flip fliplr flipud Float float_power FloatImplicit
floor floor_divide floordiv fmax fmin fmod format frac fractional_max_pool2d fractional_max_pool3d
frexp frobenius_norm full full_like gamma gather gcd ge gelu geometric ger get get_device glu grad
gradient greater greater_equal grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru gru_cell
gt hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside hex
hinge_embedding_loss histc histogram histogramdd hsplit hstack huber_loss hypot i0 igamma igammac
im2col imag index index_add index_copy index_fill index_put index_reduce index_select indices inner
insert instance_norm Int IntImplicit inverse is_autocast_cpu_enabled is_autocast_enabled
is_coalesced is_complex is_conj is_contiguous is_floating_point is_grad_enabled is_leaf is_neg
is_nonzero is_scripting is_signed isalnum isalpha isclose isdecimal isdigit isfinite isidentifier
isin isinf islower isnan isneginf isnumeric isposinf isprintable isreal isspace istft istitle
isupper item items join keys kl_div kron kthvalue l1_loss layer_norm lcm ldexp le leaky_relu len
lerp less less_equal lgamma linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross linalg_det
linalg_diagonal linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product
linalg_inv linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq
linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matmul linalg_matrix_exp
linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv
linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular linalg_svd
linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot linalg_vector_norm
linear linspace list ljust log log10 log1p log2 log_normal log_sigmoid log_sigmoid_forward
log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor
logit logspace logsumexp lower lstm lstm_cell lstrip lt lu_solve lu_unpack margin_ranking_loss
masked_fill masked_scatter masked_select mathremainder matmul matrix_exp matrix_H matrix_power max
max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
max_pool3d_with_indices max_unpool2d max_unpool3d maximum mean median meshgrid mH min minimum mish
mm mode modf moveaxis movedim mse_loss msort mT mul multi_margin_loss multilabel_margin_loss
multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow
native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm ne neg
negative new_empty new_full new_ones new_zeros nextafter nll_loss nll_loss2d nll_loss_forward
nll_loss_nd nonzero nonzero_numpy norm norm_except_dim normal not_equal nuclear_norm numel oct
one_hot ones ones_like ord outer pad pad_sequence pairwise_distance partition pdist percentFormat
permute pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma pop popitem
positive pow prelu prod promote_types put qr quantile rad2deg radians rand rand_like randint
randint_like randn randn_like random randperm range ravel real reciprocal reflection_pad1d
reflection_pad2d reflection_pad3d relu relu6 remainder remove renorm repeat repeat_interleave
replace replication_pad1d replication_pad2d replication_pad3d requires_grad reshape reshape_as
resolve_conj resolve_neg reverse rfind rindex rjust rms_norm rnn_relu rnn_relu_cell rnn_tanh
rnn_tanh_cell roll rot90 round row_stack rpartition rrelu rrelu_with_noise rsplit rsqrt rstrip rsub
scalar_tensor ScalarImplicit scaled_dot_product_attention scatter scatter_add scatter_reduce
searchsorted select select_scatter selu set_grad_enabled setdefault sgn sigmoid sign signbit silu
sin sinc sinh Size size slice slice_scatter slogdet slow_conv3d smooth_l1_loss soft_margin_loss
softmax softplus softshrink sort sorted sparse_coo_tensor sparse_dim special_airy_ai
special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
special_chebyshev_polynomial_w special_digamma special_entr special_erf special_erfc special_erfcx
special_erfinv special_exp2 special_expit special_expm1 special_gammainc special_gammaincc
special_gammaln special_hermite_polynomial_h special_hermite_polynomial_he special_i0 special_i0e
special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log1p
special_log_ndtr special_log_softmax special_logit special_logsumexp special_modified_bessel_i0
special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
special_multigammaln special_ndtr special_ndtri special_polygamma special_psi special_round
special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_sinc
special_softmax special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta split
split_with_sizes splitlines sqrt square squeeze stack startswith std std_mean stft str stride strip
sub subtract sum sum_to_size svd swapaxes swapcase swapdims sym_numel sym_size sym_storage_offset
sym_stride t take take_along_dim tan tanh tensor tensor_split tensordot threshold tile title to
to_dense to_padded_tensor to_sparse topk trace transpose trapezoid trapz triangular_solve tril
tril_indices triplet_margin_loss triu triu_indices true_divide trunc type_as unbind unflatten unfold
uniform unique_consecutive unique_dim unique_dim_consecutive unsafe_chunk unsafe_split
unsafe_split_with_sizes unsqueeze update upper upsample_bicubic2d upsample_bilinear2d
upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
values vander var var_mean vdot view view_as view_as_complex view_as_real vsplit vstack warn where
xlogy zero zeros zeros_like zfill
)";

using Names = std::set<absl::string_view>;

Names Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

}  // namespace

bool IsAllowedOperator(absl::string_view name) {
  static const auto& language = *new Names(Words(kLanguage));
  static const auto& computing = *new Names(Words(kComputing));
  if (absl::ConsumePrefix(&name, "prim::")) return language.count(name) > 0;
  if (!absl::ConsumePrefix(&name, "aten::")) return false;
  if (computing.count(name) > 0) return true;
  return absl::ConsumeSuffix(&name, "_") && computing.count(name) > 0;
}

}  // namespace muster::models
