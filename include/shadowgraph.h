/* Shadowgraph's C ABI: attention on the CPU and the judge of attention metadata, for C and for
 * every language that calls C. Link shadowgraph_c. docs/c.md begins with an example. C99 or C++11.
 *
 * Tensors are DLPack's, and stay the caller's: nothing is copied, and nothing is kept after a call.
 * A tensor lies in memory of the CPU (device 1 or 3), begins at a multiple of its element's size,
 * and may have any strides that its argument allows; strides NULL means compact, byte_offset
 * counts. Type codes that DLPack 0.6 does not name are taken by number: bool 6, e4m3fn 10, e5m2 12.
 *
 * Statuses are the program's exit codes. A call that does not return SG_OK has written no tensor.
 * `report`, the last argument of a call that judges its input, may be NULL. Else *report is NULL
 * after SG_OK, and in general where there is nothing to tell; otherwise it has every finding at
 * once, and the caller frees it. sg_last_error says in words why the thread's last failure failed.
 * No call prints, ends the process or throws; memory that runs out is SG_INTERNAL.
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
  const char* severity; /* "error", "warning", "note" */
  int64_t row, col;     /* of the element; -1: none */
} sg_finding;
#define SG_FINDING_INIT \
  { sizeof(sg_finding), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1 }

/* How many findings there are. */
SG_API int64_t sg_report_size(const sg_report* report);
/* Finding number i, from 0. SG_USAGE: there is none of that number. */
SG_API sg_status sg_report_get(const sg_report* report, int64_t i, sg_finding* out);
/* The whole report: format is "text", "json", "junit", "sarif", "github" or "html". Of the report
 * NULL the string lives until the thread's next call with NULL. NULL: no such format, or no memory.
 */
SG_API const char* sg_report_text(const sg_report* report, const char* format);
SG_API void sg_report_free(sg_report* report);

/* Attention. */

enum { SG_PORTABLE = 0, SG_FAST = 1 };
enum {
  SG_NHD = 0,
  SG_HND = 1,
  SG_STACKED_NHD = 2,
  SG_STACKED_HND = 3,
  SG_MLA_LATENT = 4,
  SG_PANELS = 5
};

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
  const DLTensor*
      mask_indptr;      /* int64 [batch + 1]: the first byte of each request's mask, and the end */
  int32_t lse_base2;    /* lse is the logarithm to base 2 (FlashInfer), else to base e */
  int32_t lse_sink;     /* lse counts the sinks, too */
  int32_t arith;        /* SG_PORTABLE: the same bits on every machine; SG_FAST */
  int32_t num_threads;  /* 0: OpenMP's default */
  int32_t max_seqlen_q; /* computes only the first so many queries of a request; 0: all */
} sg_params;
#define SG_PARAMS_INIT \
  { sizeof(sg_params), 0, 0, 0, -1, -1, NULL, NULL, NULL, 0, 0, 0, 0, 0 }

/* A paged pool of keys and values. Elements of k and v: f32, f16, bf16, e4m3fn, e5m2 or int8; the
 * last axis is contiguous. Shapes by layout: SG_NHD          k [num_pages, page_size, num_kv_heads,
 * head_dim_qk], v [..., head_dim_vo] SG_HND          k [num_pages, num_kv_heads, page_size,
 * head_dim_qk], v likewise SG_STACKED_NHD  k [num_pages, 2, page_size, num_kv_heads, head_dim]: K
 * and V; v is NULL SG_STACKED_HND  k [num_pages, 2, num_kv_heads, page_size, head_dim]; v is NULL
 *   SG_MLA_LATENT   k [num_pages, page_size, head_dim_qk], whose first head_dim_vo are V; v is NULL
 *   SG_PANELS       the engine's own order (shadowgraph/attention/kv_cache.h); head dims are given
 */
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

/* Which pages hold which request: a table, or lists. All are int32. */
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

/* The program. */

/* Runs the program `shadowgraph` with a command line, whose argv[0] is a name, and returns its exit
 * code: 0 clean, 1 findings, 2 usage, 3 bad input or nothing to judge, 4 internal. It reads and
 * writes the process's streams and takes Ctrl-C, as a program does; it does not end the process. */
SG_API int32_t sg_main(int32_t argc, const char* const* argv);

#ifdef __cplusplus
}
#endif

#endif /* SHADOWGRAPH_H_ */
