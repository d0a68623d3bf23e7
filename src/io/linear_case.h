// What the readers of recurrent cases share: the metadata's common fields, rows and slots, pools,
// draft steps, results. As CaseReader: metadata first, then, if ok(), tensors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "attn/linear_vector.h"
#include "io/case_reader.h"

namespace shadowgraph {

/// One line of the table of a system's kinds; also for kinds "NAME_...".
struct LinearKind {
  std::string_view name;
  void (*read)(CaseReader&, LinearVector*);
};
std::span<const LinearKind> gdn_kinds();
std::span<const LinearKind> kda_kinds();
std::span<const LinearKind> conv_kinds();
std::span<const LinearKind> mamba2_kinds();
std::span<const LinearKind> lightning_kinds();
std::span<const LinearKind> indexer_kinds();   // of dsa
std::span<const LinearKind> compress_kinds();  // of dsv4
std::span<const LinearKind> dsa_sparse_kinds();
std::span<const LinearKind> dsv4_sparse_kinds();
std::span<const LinearKind> dualchunk_kinds();

/// [leading..., trailing...]
using Shape = std::vector<int64_t>;
Shape joined(Shape leading, const Shape& trailing);

/// Heads, sizes of a head, channels: from 1.
int64_t read_dim(CaseReader& reader, std::string_view field);
/// "torch.bfloat16", "torch.float16" or "torch.float32".
DType read_torch_dtype(CaseReader& reader, std::string_view field);
/// "state_dtype", f32 where a case has none.
DType read_state_dtype(CaseReader& reader);
/// "pad_out", `without` where a case has none.
PadRow read_pad(CaseReader& reader, PadRow without);
/// Finds whatever is not the flag expected.
void known_flag(CaseReader& reader, std::string_view field, bool expected);
/// Numbers of rows, ascending.
std::vector<int32_t> read_row_list(CaseReader& reader, std::string_view field, int64_t rows);

/// How many tokens each row has.
struct RowLengths {
  std::vector<int32_t> lens;
  int64_t tokens = 0;
  int64_t steps = 0;  // 0: rows have lengths of their own; else tensors may be [rows, steps, ...]

  int64_t rows() const { return std::ssize(lens); }
};
/// Of "lens".
RowLengths read_lens(CaseReader& reader);
/// "B" rows, which `slots` [B] must confirm before memory is taken for them, of `steps` tokens.
RowLengths same_lens(CaseReader& reader, std::string_view slots, int64_t steps);

/// Which tensors and fields say what a row is; empty: none does.
struct RowFields {
  std::string_view slots = "state_indices";
  std::string_view offsets;      // i32 [rows + 1], as the lengths say
  std::string_view has_initial;  // u8 [rows]
  PadRow pad = PadRow::kSkip;
};
/// -1 stands at the rows of "pad_rows" and nowhere else; the rows of "zero_init_rows" have no
/// initial state. kSkip: the vector's out_valid excludes the padded rows.
StateRows read_rows(CaseReader& reader, const RowLengths& lengths, const RowFields& fields,
                    int64_t num_slots, LinearVector* vector);

/// What a state is: dtype and the axes behind [slots].
struct StateType {
  DType dtype = DType::kF32;
  Shape shape;
};
/// PREFIX_before and PREFIX_after, [slots, ...a state]: the vector's, and the call's, which has no
/// memory. "slots", where a case has it, counts them.
TensorView read_pool(CaseReader& reader, const StateType& state, std::string_view before,
                     std::string_view after, LinearVector* vector);
/// state_ref [rows, ...a state] in f32 or f64.
void read_state_ref(CaseReader& reader, const StateType& state, int64_t rows, LinearVector* vector);
/// e4m3, also where a file has them as bytes.
ConstTensorView read_e4m3(CaseReader& reader, std::string_view name, const Shape& shape);
/// A reference: f32 or f64.
ConstTensorView read_reference(CaseReader& reader, std::string_view name, const Shape& shape);

/// inter_after [places, allocated steps, ...a state], inter_ref [rows, steps, ...a state];
/// `indices` and `parents` are names of tensors, empty: none is there.
DraftSteps read_draft(CaseReader& reader, const StateType& state, const RowLengths& lengths,
                      std::string_view indices, std::string_view parents, LinearVector* vector);

/// i64 [rows, steps], each from `low` to steps - 1, as i32. earlier: each but a row's first names
/// an earlier token.
std::span<const int32_t> read_steps(CaseReader& reader, std::string_view name,
                                    const RowLengths& lengths, int64_t low, bool earlier);

/// [tokens, rest...], stored as that or, lengths.steps and split, as [rows, steps, rest...].
ConstTensorView read_tokens(CaseReader& reader, std::string_view name, DTypes dtypes,
                            const RowLengths& lengths, const Shape& rest, bool split = false);

/// Dtype, shape and strides of a view, without its memory.
TensorView without_memory(const ConstTensorView& view);
TensorView without_memory(DType dtype, const Shape& shape);

}  // namespace shadowgraph
