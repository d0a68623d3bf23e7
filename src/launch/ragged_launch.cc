#include "launch/ragged_launch.h"

#include "attn/validate.h"
#include "kernels/footprint.h"
#include "launch/launch_scalars.h"

namespace shadowgraph {

namespace {

enum Arg : uint8_t {
  kQ,
  kK,
  kV,
  kCuSeqlensQ,
  kCuSeqlensK,
  kParams,
  kOut = kParams + kParamsArgs,
  kLse,
  kScalars
};

/// The call without padding.
RaggedAttention call_of(const LaunchFrame& f) {
  RaggedAttention c = ragged_call(f.launch).call;
  drop_padding(c.cu_seqlens_q, &c.q);
  drop_padding(c.cu_seqlens_q, &c.out);
  drop_padding(c.cu_seqlens_q, &c.lse.tensor);
  drop_padding(c.cu_seqlens_k, &c.k);
  drop_padding(c.cu_seqlens_k, &c.v);
  return c;
}

Progress body(LaunchFrame& f) {
  const RaggedAttention call = call_of(f);
  if (!attention_varlen(call).ok()) {
    poison(call.out);
    poison(call.lse.tensor);
  }
  return Progress::kDone;
}

/// Of a call that is refused: its metadata, the rows beyond q, k and v, and the outputs.
void add_corrupt(const RaggedAttention& c, Footprint* spans) {
  add_whole(spans, c.cu_seqlens_q);
  add_whole(spans, c.cu_seqlens_k);
  add_params_arrays(spans, c.params);
  add_rows_beyond(spans, c.q, c.cu_seqlens_q);
  add_rows_beyond(spans, c.k, c.cu_seqlens_k);
  add_rows_beyond(spans, c.v, c.cu_seqlens_k);
  add_written(spans, c.out);
  add_written(spans, c.lse.tensor);
}

void footprint(const LaunchFrame& f, Footprint* spans) {
  const RaggedAttention call = call_of(f);
  if (validate(call).ok()) {
    *spans = attention_footprint(call);
  } else {
    add_corrupt(call, spans);
  }
  name_requests(f.scalar<RaggedScalars>(kScalars).rows, spans);
}

}  // namespace

constinit const Kernel kRaggedAttention{
    .name = "attention_varlen", .body = body, .footprint = footprint};

CallOf<RaggedAttention> ragged_call(const KernelLaunch& launch) {
  const LaunchFrame f{launch};
  const auto s = f.scalar<RaggedScalars>(kScalars);
  RaggedAttention c;
  c.q = view_of(f.pointer<void>(kQ), s.q);
  c.k = view_of(f.pointer<void>(kK), s.k);
  c.v = view_of(f.pointer<void>(kV), s.v);
  c.out = view_of(f.pointer<void>(kOut), s.out);
  c.lse = NaturalLse(view_of(f.pointer<void>(kLse), s.lse));
  c.cu_seqlens_q = array_of<int32_t>(f, kCuSeqlensQ, s.num_offsets_q);
  c.cu_seqlens_k = array_of<int32_t>(f, kCuSeqlensK, s.num_offsets_k);
  c.k_scale = s.k_scale;
  c.v_scale = s.v_scale;
  c.params = params_of(f, kParams, s.params, s.num_offsets_q - 1);
  c.options = options_of(s.params);
  c.max_seqlen_q = s.params.max_seqlen_q;
  return {c, s.rows};
}

KernelLaunch ragged_launch(const RaggedAttention& c, const RequestRows& rows) {
  RaggedScalars s{};
  s.q = scalars_of(c.q);
  s.k = scalars_of(c.k);
  s.v = scalars_of(c.v);
  s.out = scalars_of(c.out);
  s.lse = scalars_of(c.lse.tensor);
  s.params = scalars_of(c.params, c.options, c.max_seqlen_q);
  s.num_offsets_q = static_cast<int64_t>(c.cu_seqlens_q.size());
  s.num_offsets_k = static_cast<int64_t>(c.cu_seqlens_k.size());
  s.k_scale = c.k_scale;
  s.v_scale = c.v_scale;
  s.rows = rows;
  KernelLaunch launch = launch_of(kRaggedAttention, s.num_offsets_q - 1);
  launch.args.pointer(c.q.data)
      .pointer(c.k.data)
      .pointer(c.v.data)
      .pointer(c.cu_seqlens_q.data())
      .pointer(c.cu_seqlens_k.data());
  add_params(launch.args, c.params).pointer(c.out.data).pointer(c.lse.tensor.data).scalar(s);
  return launch;
}

}  // namespace shadowgraph
