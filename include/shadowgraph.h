/* Shadowgraph's C ABI: attention on the CPU and the judge of attention metadata, for C and for
 * every language that calls C. Link shadowgraph_c. docs/c.md begins with an example. C99 or C++11.
 *
 * Tensors are DLPack's, and stay the caller's: a call that computes copies nothing, and no call
 * keeps a tensor (batches and steps copy what they are made of). A tensor lies in memory of the CPU
 * (device 1 or 3), begins at a multiple of its element's size, and may have any strides that its
 * argument allows; strides NULL means compact, byte_offset counts. Type codes that DLPack 0.6 does
 * not name are taken by number: bool 6, e4m3fn 10, e5m2 12.
 *
 * Statuses are the program's exit codes. A call that does not return SG_OK has written no tensor.
 * `report`, the last argument of a call that judges its input, may be NULL. Else *report is NULL
 * where there is nothing to tell, as after SG_OK; otherwise it has every finding at once, and the
 * caller frees it. sg_last_error says in words why the thread's last failure failed.
 * No call prints, ends the process or throws; memory that runs out is SG_INTERNAL (a judge, and a
 * report in json or sarif, may then end the process).
 *
 * Structs begin with struct_size; SG_..._INIT sets it. Members are only ever added, at the end, and
 * mean nothing at 0. So a struct of an older header is one with zeros behind it, and one of a newer
 * header is accepted if what this library does not know is 0; else SG_USAGE.
 *
 * Strings are UTF-8, and live as long as the handle that they belong to. Threads may call anything
 * at once, but one handle only one after the other, and calls write distinct outputs.
 */
#ifndef SHADOWGRAPH_H_
#define SHADOWGRAPH_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SG_API __attribute__((visibility("default")))
#else
#define SG_API
#endif

/* The major number is in the library's soname; functions and members are only added to a minor. */
#define SG_ABI_MAJOR 1
#define SG_ABI_MINOR 0

typedef int32_t sg_status;
enum {
  SG_OK = 0,
  SG_FINDINGS = 1,  /* a judge found something */
  SG_USAGE = 2,     /* a call that no program should make: a missing struct, an unknown name */
  SG_BAD_INPUT = 3, /* tensors or numbers that the call refuses; its report says which */
  SG_INTERNAL = 4   /* out of memory, or a mistake of this library */
};

/* SG_ABI_MAJOR << 16 | SG_ABI_MINOR of the library that runs. */
SG_API uint32_t sg_abi_version(void);
/* "0.1.0": the version of the library that runs. */
SG_API const char* sg_version(void);
/* Why the thread's last call that failed did so; "" if none did. Valid until the thread's next
 * call.
 */
SG_API const char* sg_last_error(void);

/* Reports. */

/* The findings of a call. NULL is a report without findings: every function takes it. */
typedef struct sg_report sg_report;

/* One violated law. Strings are the report's; those that say nothing are "". */
typedef struct {
  size_t struct_size;
  const char* id;       /* the law's stable name: "table.page_id" */
  const char* title;    /* the law in one sentence */
  const char* mend;     /* how to mend a violation */
  const char* field;    /* the argument, by its name here: "page_table" */
  const char* index;    /* its element in full: "[2, 5]" */
  const char* expected; /* the limit */
  const char* got;      /* the value */
  const char* refs;     /* sources, separated by spaces: "fa.I-28 sglang#25045" */
  const char* text; /* all of it in a line: "table.page_id: page_table[2, 5] is 99, expected ..." */
  const char* severity;  /* "error", "warning", "note" */
  int64_t row, col;      /* of the element; -1: none */
  const char* diagnosis; /* of wrong outputs: known mistakes that would give them, a line each, the
                            likeliest first */
} sg_finding;
#define SG_FINDING_INIT \
  { sizeof(sg_finding), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1, NULL }

/* How many findings there are. */
SG_API int64_t sg_report_size(const sg_report* report);
/* Finding number i, from 0. SG_USAGE: there is none of that number. */
SG_API sg_status sg_report_get(const sg_report* report, int64_t i, sg_finding* out);
/* The whole report: format is "text", "json", "junit", "sarif", "github" or "html". Of the report
 * NULL the string lives until the thread's next call with NULL. NULL: no such format, or no memory.
 */
SG_API const char* sg_report_text(const sg_report* report, const char* format);
/* Adds a case to a report of several: its findings, none if `more` is NULL, under the name case_id,
 * unless that is NULL. If *report is NULL, it is made. Strings of *report that were handed out
 * before are no longer valid. */
SG_API sg_status sg_report_add(sg_report** report, const sg_report* more, const char* case_id);
/* Adds a finding that the caller judged: of the law `id`, at field[row, col] (-1: none). If *report
 * is NULL, it is made. SG_USAGE: no such law. */
SG_API sg_status sg_report_finding(sg_report** report, const char* id, const char* field,
                                   int64_t row, int64_t col, const char* expected, const char* got);
SG_API void sg_report_free(sg_report* report);

/* Attention. */

enum { SG_PORTABLE = 0, SG_FAST = 1 };
/* Layouts of a paged pool. Panels: shadowgraph/attention/kv_cache.h. */
enum {
  SG_NHD = 0, /* k [num_pages, page_size, num_kv_heads, head_dim_qk], v [..., head_dim_vo] */
  SG_HND = 1, /* k [num_pages, num_kv_heads, page_size, head_dim_qk], v likewise */
  SG_STACKED_NHD = 2, /* k [num_pages, 2, page_size, num_kv_heads, head_dim]: K and V; v is NULL */
  SG_STACKED_HND = 3, /* k [num_pages, 2, num_kv_heads, page_size, head_dim]; v is NULL */
  SG_MLA_LATENT = 4,  /* k [num_pages, page_size, head_dim_qk], V its beginning; v is NULL */
  SG_PANELS = 5       /* the engine's own order; head dims are given */
};

/* How ALiBi's slopes multiply distances: slope * (key's position - query's), -slope * |distance|,
 * or -slope * sqrt(query's position - key's). */
enum { SG_ALIBI_LINEAR = 0, SG_ALIBI_DISTANCE = 1, SG_ALIBI_SQRT = 2 };

/* Terms that only some models have (shadowgraph/attention/params.h says what each means). NULL or
 * 0: absent. Tensors of several axes are compact. SG_BAD_INPUT: param.terms, param.scale, len.*. */
typedef struct {
  size_t struct_size;
  int32_t alibi;
  const DLTensor* alibi_slopes;  /* f32 [num_qo_heads] */
  const DLTensor* key_bias;      /* f32 [num_qo_heads, keys of all requests], added to logits */
  const DLTensor* qq_bias;       /* f32 [n, n], of the first n new tokens of a request */
  const DLTensor* relative_bias; /* f32 [num_qo_heads, 2 n + 1], by the distance of key and query */
  int32_t temperature_len;       /* logits of later queries grow with log(position) */
  int32_t attention_chunk, chunk_lookback; /* positions of a chunk; chunks before a query's own */
  const DLTensor* request_causal;          /* bool or uint8 [batch], instead of sg_params.causal */
  const DLTensor* cache_leftpad;           /* int32 [batch]: keys before it are not seen */
  const DLTensor* bidirectional_ranges;    /* int32 [ranges, 2]: tokens of one see each other */
  const DLTensor* bidirectional_indptr;    /* int32 [batch + 1]: ranges of each request */
  const DLTensor *k_scales, *v_scales;     /* f32 [num_kv_heads] or [batch, num_kv_heads] */
  float q_scale, out_scale;                /* multiply q, and out; 0 means 1 */
  const DLTensor *seqused_q, *seqused_k; /* int32 [batch]: a request's first rows that are there */
  int32_t mask_heads; /* of sg_params.mask: num_qo_heads if each head has one, else 0 or 1 */
} sg_terms;
#define SG_TERMS_INIT                                                                            \
  {                                                                                              \
    sizeof(sg_terms), 0, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 1, \
        1, NULL, NULL, 1                                                                         \
  }

/* Parameters of a layer. Heads and head dims follow from the tensors. */
typedef struct {
  size_t struct_size;
  float sm_scale; /* multiplies q.k; 1 / sqrt(head_dim_qk) is usual, and there is no default */
  float logits_soft_cap; /* a logit s becomes cap * tanh(s / cap); 0: off */
  int32_t causal; /* query i of q_len stands at the key kv_len - q_len + i, and sees no later one */
  int32_t window_left;   /* keys before a query's own that it sees; -1: all */
  int32_t window_right;  /* keys behind it; -1: all */
  const DLTensor* sinks; /* f32 [num_qo_heads]: one more logit a head, without a value; or NULL */
  /* Which keys each query sees, beside causal and window: of each request [q_len, kv_len], request
   * after request. bool: one byte a pair, 0 hides. uint8: bits, least significant first, each
   * request on a byte of its own. NULL: all */
  const DLTensor* mask;
  const DLTensor* mask_indptr; /* int64 [batch + 1]: first byte of each request's mask, the end */
  int32_t lse_base2;           /* lse is the logarithm to base 2 (FlashInfer), else to base e */
  int32_t lse_sink;            /* lse counts the sinks, too */
  int32_t arith;               /* SG_PORTABLE: the same bits on every machine; SG_FAST */
  int32_t num_threads;         /* 0: OpenMP's default */
  int32_t max_seqlen_q;        /* computes only the first so many queries of a request; 0: all */
  const sg_terms* terms;       /* or NULL */
} sg_params;
#define SG_PARAMS_INIT \
  { sizeof(sg_params), 0, 0, 0, -1, -1, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL }

/* Threads of calls that name no number of their own; 0: OpenMP's default. A process that was forked
 * after a call with several threads sets 1: OpenMP's threads did not come along. */
SG_API void sg_set_num_threads(int32_t num_threads);
/* The instruction set that calls use: the best of this machine, or the one that was set ("generic",
 * "avx2", "avx512", ...). SG_BAD_INPUT: this machine has none of that name; nothing changes. */
SG_API const char* sg_isa(void);
SG_API sg_status sg_set_isa(const char* name);

/* A paged pool of keys and values. Elements of k and v: f32, f16, bf16, e4m3fn, e5m2 or int8; the
 * last axis is contiguous. */
typedef struct {
  size_t struct_size;
  const DLTensor *k, *v;
  const DLTensor *k_scales,
      *v_scales; /* of int8: f32 [num_pages, page_size, num_kv_heads]; or NULL */
  int32_t layout;
  int32_t head_dim_vo;    /* of SG_MLA_LATENT and SG_PANELS; else 0 */
  int32_t head_dim_qk;    /* of SG_PANELS; else 0 */
  float k_scale, v_scale; /* key = stored value * k_scale, value = stored value * v_scale */
} sg_cache;
#define SG_CACHE_INIT \
  { sizeof(sg_cache), NULL, NULL, NULL, NULL, SG_NHD, 0, 0, 1, 1 }

/* Which pages hold which request: a table, or lists, and then the other is NULL. All are int32. */
typedef struct {
  size_t struct_size;
  const DLTensor* page_table;    /* [batch, max_pages] page ids; rows may lie apart */
  const DLTensor* cache_seqlens; /* [batch] keys of each request, its new ones included */
  const DLTensor* kv_indptr;     /* or, with page_table NULL, [batch + 1] offsets into kv_indices */
  const DLTensor* kv_indices;    /* page ids */
  const DLTensor* last_page_len; /* [batch] tokens of a request's last page, from 1 */
} sg_pages;
#define SG_PAGES_INIT \
  { sizeof(sg_pages), NULL, NULL, NULL, NULL, NULL }

/* Queries against a paged cache. q [total_q, num_qo_heads, head_dim_qk] and out [total_q,
 * num_qo_heads, head_dim_vo] are f32, f16 or bf16, their last axis contiguous; lse is f32 [total_q,
 * num_qo_heads] of any strides, or NULL. cu_seqlens_q: int32 [batch + 1] offsets of tokens; NULL: a
 * decode, one query a request. A row that sees no key has out 0 and lse -inf.
 * SG_BAD_INPUT: input.*, param.*, mask.*, len.*, table.page_id. */
SG_API sg_status sg_paged_attention(const DLTensor* q, const sg_cache* cache, const sg_pages* pages,
                                    const DLTensor* cu_seqlens_q, const sg_params* params,
                                    DLTensor* out, DLTensor* lse, sg_report** report);
/* Queries against K and V that are packed request after request: k [total_k, num_kv_heads,
 * head_dim_qk], v [total_k, num_kv_heads, head_dim_vo], which may be fp8, too; cu_seqlens_k: int32
 * [batch + 1]. All else as above. */
SG_API sg_status sg_ragged_attention(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                     const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k,
                                     const sg_params* params, DLTensor* out, DLTensor* lse,
                                     sg_report** report);
/* Judges what another kernel left of such a call, in out and lse (or NULL): against a float64
 * oracle, by the error bound that is derived from the kernel's arithmetic, a name of `shadowgraph
 * list arithmetics` ("plain_f32", "fa3"). In rows that see no key the lse may be any mark without
 * mass. SG_FINDINGS: num.bound, num.lse_bound, at the worst element; a finding's diagnosis names
 * mistakes that would give these results. SG_USAGE: another name. SG_BAD_INPUT: what such a call
 * refuses. */
SG_API sg_status sg_judge_paged(const DLTensor* q, const sg_cache* cache, const sg_pages* pages,
                                const DLTensor* cu_seqlens_q, const sg_params* params,
                                const DLTensor* out, const DLTensor* lse, const char* arithmetic,
                                sg_report** report);
SG_API sg_status sg_judge_ragged(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* cu_seqlens_q, const DLTensor* cu_seqlens_k,
                                 const sg_params* params, const DLTensor* out, const DLTensor* lse,
                                 const char* arithmetic, sg_report** report);
/* Merges partial results over disjoint sets of keys: v [rows, num_states, num_heads, head_dim], s
 * f32 [rows, num_states, num_heads] logarithms to base 2 or e, out [rows, num_heads, head_dim], lse
 * f32 [rows, num_heads] or NULL. A state of lse -inf or +inf has no mass. SG_BAD_INPUT: input.*. */
SG_API sg_status sg_merge_states(const DLTensor* v, const DLTensor* s, int32_t base2, DLTensor* out,
                                 DLTensor* lse, sg_report** report);
/* Stores new keys and values: k [num_tokens, num_kv_heads, head_dim_qk], v [num_tokens,
 * num_kv_heads, head_dim_vo], of a latent cache NULL; out_cache_loc int64 [num_tokens]: page *
 * page_size + offset. A token whose slot is below first_slot, or below 0, is dropped. Values are
 * rounded to the cache's type, by its scales. SG_BAD_INPUT: input.*, param.scale, slot.range,
 * slot.duplicate. */
SG_API sg_status sg_store_kv(const DLTensor* k, const DLTensor* v, const DLTensor* out_cache_loc,
                             const sg_cache* cache, int64_t first_slot, sg_report** report);
/* Copies page source_pages[i] to target_pages[i], int32 both; with both NULL every page to the same
 * id. Layouts may differ; sizes, types and scales may not. SG_BAD_INPUT: input.*, table.page_id. */
SG_API sg_status sg_copy_kv(const sg_cache* source, const sg_cache* target,
                            const DLTensor* source_pages, const DLTensor* target_pages,
                            sg_report** report);

/* Batches. */

/* A step as a scheduler knows it: metadata is made from it, and judged by it. It owns its arrays.
 */
typedef struct sg_batch sg_batch;

/* Lengths may count the new tokens or not; SG_LENS_USUAL: as engines have it, without them in
 * target_verify and draft_decode. */
enum { SG_LENS_USUAL = 0, SG_LENS_FULL = 1, SG_LENS_PREFIX = 2 };

/* Arrays are integers of any width and any strides, copied. Requests are given by a table, or key
 * by key; what else is NULL is left out. */
typedef struct {
  size_t struct_size;
  const char* mode;   /* "extend", "decode", "target_verify", ... (`shadowgraph list modes`) */
  int32_t page_size;  /* tokens of a page, a power of two */
  int32_t pool_pages; /* ids of pages are below it; 0: not known */
  const DLTensor* req_to_token;     /* [rows, width] slot of each token, and */
  const DLTensor* req_pool_indices; /* [batch] the row of each request, and */
  const DLTensor* seq_lens;         /* [batch] tokens, by seq_lens_kind */
  const DLTensor* key_indptr;       /* or [batch + 1] offsets into keys, and */
  const DLTensor* keys;             /* the slot of each key, the new ones last */
  const DLTensor* q_lens;           /* [batch] new tokens; NULL where the mode implies them */
  const DLTensor* out_cache_loc;    /* [tokens] slot of each new token; NULL: those of its key. Of a
                                       draft_decode [batch * topk * num_steps] */
  const DLTensor* positions;        /* [tokens] */
  const DLTensor* orig_seq_lens;    /* [batch] tokens of whole prompts that come in chunks */
  const DLTensor* encoder_lens; /* [batch] tokens of the encoder, first in a row of req_to_token */
  const DLTensor* full_to_swa;  /* [slots] of the sliding-window pool, 0 where evicted */
  const DLTensor* custom_mask;  /* of target_verify with topk > 1: 0 or 1, request by request
                                   [q_len, kv_len] */
  int32_t seq_lens_kind;
  int32_t topk, num_steps, num_draft_tokens, draft_step; /* of speculation */
} sg_batch_params;
#define SG_BATCH_INIT                                                                          \
  {                                                                                            \
    sizeof(sg_batch_params), NULL, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
        NULL, NULL, NULL, 0, 0, 0, 0, 0                                                        \
  }

/* Makes a batch; the caller frees it. SG_BAD_INPUT, and *batch NULL: input.*, len.*,
 * table.pool_row, table.row_width, mask.size, pool.shape. SG_USAGE: no such mode. */
SG_API sg_status sg_batch_new(const sg_batch_params* params, sg_batch** batch, sg_report** report);

/* A scheduler's legal steps, one after the other, with requests that come and go: histories are for
 * builders with buffers that live from step to step. */
typedef struct sg_history sg_history;

/* Draws a history: the generator of property tests (shadowgraph/testing.h), which asks `choose` for
 * a number below `bound` again and again, here and in sg_history_next; 0 is the simplest, and a
 * callback that wants to end early goes on with 0. The same numbers give the same history. options:
 * NULL, or a JSON object with some of modes ["decode", "extend"], page_sizes [1, 2, 4],
 * max_requests 4, max_context_len 32, max_extend_len 8, topk 1, num_steps 0, num_draft_tokens 0,
 * dllm_block 0, max_encoder_len 0, window_left -1, prefix_cache false, small_requests 3 and steps
 * 20, here with their defaults. The caller frees it. SG_BAD_INPUT: test.options, pool.shape. */
SG_API sg_status sg_history_new(const char* options,
                                uint32_t (*choose)(void* context, uint32_t bound), void* context,
                                sg_history** history, sg_report** report);
/* The next step of these modes, which the caller frees; *batch is NULL when the history is over. */
SG_API sg_status sg_history_next(sg_history* history, sg_batch** batch);
/* Adds what was found of the step that sg_history_next gave last; no other step comes behind a
 * finding. NULL adds nothing. */
SG_API sg_status sg_history_expect(sg_history* history, const sg_report* findings);
SG_API void sg_history_free(sg_history* history);
/* The last step of a history; *batch is NULL where it has none of these modes. Errors likewise. */
SG_API sg_status sg_batch_draw(const char* options,
                               uint32_t (*choose)(void* context, uint32_t bound), void* context,
                               sg_batch** batch, sg_report** report);

/* The property test of a builder (shadowgraph/testing.h): `property` gets one history after the
 * other, makes metadata of each of its steps, and tells by sg_history_expect what it finds: every
 * batch of up to small_requests requests, then random histories. The first that breaks a law is
 * shrunk. The history is not to be freed. options: those above, and histories 200, seed 1, choices
 * "" ("3.0.1": only what these make; "" is the environment's SHADOWGRAPH_CHOICES) and command "",
 * which runs this test. SG_FINDINGS: those of the smallest, which name the step and its choices.
 * SG_BAD_INPUT: test.options, pool.shape; test.nothing, a mode that never came. */
SG_API sg_status sg_property_check(const char* options,
                                   void (*property)(void* context, sg_history* history),
                                   void* context, sg_report** report);

/* "decode", and "decode, page_size 2, prefix_lens [3, 0], q_lens [1, 1]". */
SG_API const char* sg_batch_mode(const sg_batch* batch);
SG_API const char* sg_batch_text(const sg_batch* batch);
/* page_size, pool_pages, requests, rows, topk, num_steps, num_draft_tokens, draft_step,
 * seq_lens_are_prefixes. A row is a request; in a draft_decode, one of its branches. SG_USAGE: no
 * such name. */
SG_API sg_status sg_batch_number(const sg_batch* batch, const char* name, int64_t* out);
/* A view of an array, to be read only, as long as the batch lives; what a batch has not is empty.
 * The truth, int32: prefix_lens, q_lens, kv_lens [rows], cu_seqlens_q, key_indptr [rows + 1], keys
 * (slots, row by row), stored [tokens] (the slot of each new token); uint8: mask (row by row
 * [q_len, kv_len]). As in sg_batch_params, int32: req_to_token, req_pool_indices, seq_lens,
 * extend_lens (its q_lens), orig_seq_lens, encoder_lens; int64: out_cache_loc, positions,
 * full_to_swa; uint8: custom_mask. SG_USAGE: no such name. */
SG_API sg_status sg_batch_array(const sg_batch* batch, const char* name, DLTensor* out);
SG_API void sg_batch_free(sg_batch* batch);

/* The judge. */

/* An array or a number of the metadata, by what it tells (include/shadowgraph/judge.h): kv_lens,
 * q_lens, cu_seqlens_q, cu_seqlens_k, page_table, kv_indptr, kv_indices, last_page_len, slots,
 * custom_mask, max_seqlen_q, max_seqlen_k, or another name of `shadowgraph list fields laws`. */
typedef struct {
  size_t struct_size; /* the same of all elements of an array */
  const char* role;
  /* integers or bool, any strides; rows behind the batch's are padding */
  const DLTensor* values;
  int64_t number;   /* where values is NULL */
  int32_t unit;     /* tokens of a column or entry: 1, or a page's; 0: a page's */
  const char* name; /* its name in findings; NULL: the role */
} sg_role_value;
#define SG_ROLE_VALUE_INIT \
  { sizeof(sg_role_value), NULL, NULL, 0, 0, NULL }

/* Options of the judge: no batch says these. */
typedef struct {
  size_t struct_size;
  int32_t max_context_len;           /* tokens of a request, drafts aside; 0: not known */
  int32_t window_left;               /* of layers with a window; -1: none */
  int32_t pad_kv_least, pad_kv_most; /* kv_lens of padding */
  const char* engine;                /* whose padding it is: "any", "sglang", "sglang_npu" */
} sg_judge_options;
#define SG_JUDGE_INIT \
  { sizeof(sg_judge_options), 0, -1, 0, 1, NULL }

/* Judges the metadata of a step, and the batch itself. options: NULL means SG_JUDGE_INIT.
 * SG_FINDINGS: laws that are broken, of each law and field the first place and how many more.
 * SG_BAD_INPUT: values that cannot be judged (input.*, test.options, left_out.*, skip.*). SG_USAGE:
 * no such engine. */
SG_API sg_status sg_check(const sg_batch* batch, const sg_role_value* values, size_t count,
                          const sg_judge_options* options, sg_report** report);

/* Recorded steps. */

/* A line of engine traces (docs/traces.md), built from tensors and judged without JSON. */
typedef struct sg_step sg_step;

/* A step of a backend ("laws" is anybody's; `shadowgraph list backends`) in a mode ("decode") and a
 * phase ("eager", "capture", "replay"). The caller frees it. */
SG_API sg_status sg_step_new(const char* backend, const char* mode, const char* phase,
                             sg_step** step);
/* Names the step in findings; else "step". */
SG_API sg_status sg_step_id(sg_step* step, const char* id);
/* Members of `config`: numbers and truths (0, 1), and words. SG_USAGE: no line has such a key.
 * SG_BAD_INPUT: it has, but may not say so. */
SG_API sg_status sg_step_config(sg_step* step, const char* key, int64_t value);
SG_API sg_status sg_step_config_text(sg_step* step, const char* key, const char* text);
/* The role of a field of `expect` whose name is the engine's own. */
SG_API sg_status sg_step_role(sg_step* step, const char* field, const char* role);
/* Members of `input` and of `expect`: integers or truths of any width, strides and 0 to 4 axes,
 * copied; a key that comes again replaces. NULL: the member is there and holds nothing.
 * sg_step_pages: of `input`, and an element is a page. sg_step_number: of `expect`, a number of the
 * host. SG_BAD_INPUT: input.*, in sg_last_error. */
SG_API sg_status sg_step_input(sg_step* step, const char* key, const DLTensor* tensor);
SG_API sg_status sg_step_pages(sg_step* step, const char* key, const DLTensor* tensor);
SG_API sg_status sg_step_field(sg_step* step, const char* key, const DLTensor* tensor);
SG_API sg_status sg_step_number(sg_step* step, const char* key, int64_t value);
/* A plan of one of FlashInfer's wrappers, as the engine names it ("decode_wrappers[0]", "plan"),
 * and the arguments of the last plan; both NULL: the step planned nothing. */
SG_API sg_status sg_step_call(sg_step* step, const char* wrapper, const char* call);
SG_API sg_status sg_step_argument(sg_step* step, const char* key, const DLTensor* tensor);
/* The builder raised instead: "IndexError", "index 3 is out of bounds". */
SG_API sg_status sg_step_exception(sg_step* step, const char* type, const char* message);
/* Judges the step. SG_FINDINGS: laws that are broken. SG_BAD_INPUT: it cannot be judged (io.line,
 * skip.*). A report without findings has notes in its text: fields that nobody judged (left_out.*).
 */
SG_API sg_status sg_step_judge(const sg_step* step, sg_report** report);
/* The step as a line for `shadowgraph check`, without its end; valid until the step's next call. */
SG_API sg_status sg_step_line(sg_step* step, const char** text, size_t* size);
SG_API void sg_step_free(sg_step* step);

/* The program. */

/* Runs the program `shadowgraph` with a command line, whose argv[0] is a name, and returns its exit
 * code: 0 clean, 1 findings, 2 usage, 3 bad input or nothing to judge, 4 internal. It reads and
 * writes the process's streams and takes Ctrl-C, as a program does; it does not end the process. */
SG_API int32_t sg_main(int32_t argc, const char* const* argv);

#ifdef __cplusplus
}
#endif

#endif /* SHADOWGRAPH_H_ */
