/* Attention and its judge, merges, stores and copies. */
#include <stdint.h>

#include "core.h"

/* Outputs. */

/* A call writes out [shape], and lse [shape without the last axis]. */
typedef struct {
  const DLTensor* like; /* out is made like it, where the caller gave none */
  int64_t shape[3];     /* negative: not known, since the input is wrong */
  PyObject *out, *lse;  /* as given: a tensor, None or NULL; lse also a bool */
} Outputs;

static PyObject* output(Call* call, const char* name, const Outputs* outputs, int axes,
                        DLTensor** tensor) {
  static int64_t no_sizes[3];
  static DLTensor nothing[2] = {{NULL, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, no_sizes, NULL, 0},
                                {NULL, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, no_sizes, NULL, 0}};
  const bool f32 = axes == 2;
  PyObject* given = f32 ? outputs->lse : outputs->out;
  if (given == Py_None || given == Py_True) given = NULL;
  bool known = outputs->like->device.device_type == kDLCPU;
  for (int i = 0; i < 3; ++i) known = known && outputs->shape[i] >= 0;
  if (given == NULL && !known) { /* the call refuses the input before it looks for this */
    *tensor = &nothing[axes - 2];
    return Py_NewRef(Py_None);
  }
  PyObject* out = given != NULL
                      ? Py_NewRef(given)
                      : tensor_empty((const View*)outputs->like, outputs->shape, axes, f32);
  if (out == NULL) return NULL;
  const Want want = {.function = call->function, .name = name, .written = true, .held = call->held};
  *tensor = take_view(call, out, &want);
  if (*tensor == NULL) Py_CLEAR(out);
  return out;
}

typedef sg_status Run(const void* members, DLTensor* out, DLTensor* lse, sg_report** report);

/* Runs a call, and returns out or (out, lse). */
static PyObject* run_call(Call* call, const Outputs* outputs, Run* run, const void* members) {
  PyObject* given = outputs->lse;
  const bool with_lse = given != NULL && given != Py_None && given != Py_False;
  DLTensor *out_tensor = NULL, *lse_tensor = NULL;
  PyObject* out = output(call, "out", outputs, 3, &out_tensor);
  PyObject* lse = out == NULL || !with_lse ? NULL : output(call, "lse", outputs, 2, &lse_tensor);
  bool good = out != NULL && (lse != NULL || !with_lse);
  if (good) {
    sg_report* report = NULL;
    PyThreadState* const released = PyEval_SaveThread();
    const sg_status status = run(members, out_tensor, lse_tensor, &report);
    PyEval_RestoreThread(released);
    good = succeeded(call->function, status, report);
  }
  if (good && lse == NULL) return out;
  PyObject* both = good ? PyTuple_Pack(2, out, lse) : NULL;
  Py_XDECREF(out), Py_XDECREF(lse);
  return both;
}

/* Attention. */

typedef struct {
  const DLTensor *q, *k, *v, *cu_seqlens_q, *cu_seqlens_k;
  sg_cache cache;
  sg_pages pages;
  sg_params params;
  sg_terms terms;
  PyObject *out, *lse;
  const DLTensor *judged_out, *judged_lse;
  const char* arithmetic;
} Attention;

static const char* const ariths[] = {"portable", "fast", NULL};
static const char* const alibis[] = {"linear", "distance", "sqrt", NULL};

#define AT(member) offsetof(Attention, member)
#define LAYER_ARGUMENTS                                                                            \
  {"sm_scale", FLOAT, AT(params.sm_scale), true, NULL},                                            \
      {"logits_soft_cap", FLOAT, AT(params.logits_soft_cap), false, NULL},                         \
      {"causal", TRUTH, AT(params.causal), false, NULL},                                           \
      {"window_left", INT, AT(params.window_left), false, NULL},                                   \
      {"window_right", INT, AT(params.window_right), false, NULL},                                 \
      {"sinks", FLOATS, AT(params.sinks), false, NULL},                                            \
      {"custom_mask", TENSOR, AT(params.mask), false, NULL},                                       \
      {"mask_indptr", INT64S, AT(params.mask_indptr), false, NULL},                                \
      {"mask_heads", INT, AT(terms.mask_heads), false, NULL},                                      \
      {"lse_base2", TRUTH, AT(params.lse_base2), false, NULL},                                     \
      {"lse_sink", TRUTH, AT(params.lse_sink), false, NULL},                                       \
      {"arith", WORD, AT(params.arith), false, ariths},                                            \
      {"num_threads", INT, AT(params.num_threads), false, NULL},                                   \
      {"max_seqlen_q", INT, AT(params.max_seqlen_q), false, NULL},                                 \
      {"alibi", WORD, AT(terms.alibi), false, alibis},                                             \
      {"alibi_slopes", FLOATS, AT(terms.alibi_slopes), false, NULL},                               \
      {"key_bias", FLOATS, AT(terms.key_bias), false, NULL},                                       \
      {"qq_bias", FLOATS, AT(terms.qq_bias), false, NULL},                                         \
      {"relative_bias", FLOATS, AT(terms.relative_bias), false, NULL},                             \
      {"temperature_len", INT, AT(terms.temperature_len), false, NULL},                            \
      {"attention_chunk", INT, AT(terms.attention_chunk), false, NULL},                            \
      {"chunk_lookback", INT, AT(terms.chunk_lookback), false, NULL},                              \
      {"request_causal", TENSOR, AT(terms.request_causal), false, NULL},                           \
      {"cache_leftpad", INT32S, AT(terms.cache_leftpad), false, NULL},                             \
      {"bidirectional_ranges", INT32S, AT(terms.bidirectional_ranges), false, NULL},               \
      {"bidirectional_indptr", INT32S, AT(terms.bidirectional_indptr), false, NULL},               \
      {"k_scales", FLOATS, AT(terms.k_scales), false, NULL},                                       \
      {"v_scales", FLOATS, AT(terms.v_scales), false, NULL},                                       \
      {"q_scale", FLOAT, AT(terms.q_scale), false, NULL},                                          \
      {"out_scale", FLOAT, AT(terms.out_scale), false, NULL},                                      \
      {"seqused_q", INT32S, AT(terms.seqused_q), false, NULL},                                     \
      {"seqused_k", INT32S, AT(terms.seqused_k), false, NULL}, {"dtype", DTYPE, 0, false, NULL}, { \
    "kv_dtype", KV_DTYPE, 0, false, NULL                                                           \
  }
#define OUTPUTS \
  {"out", OBJECT, AT(out), false, NULL}, { "lse", OBJECT, AT(lse), false, NULL }
#define JUDGED                                                                                 \
  {"out", VALUES, AT(judged_out), true, NULL}, {"lse", TENSOR, AT(judged_lse), false, NULL}, { \
    "arithmetic", TEXT, AT(arithmetic), true, NULL                                             \
  }
#define PAGED_ARGUMENTS                                                      \
  {"q", VALUES, AT(q), true, NULL}, {"cache", CACHE, AT(cache), true, NULL}, \
      {"page_table", INT32S, AT(pages.page_table), false, NULL},             \
      {"cache_seqlens", INT32S, AT(pages.cache_seqlens), false, NULL},       \
      {"kv_indptr", INT32S, AT(pages.kv_indptr), false, NULL},               \
      {"kv_indices", INT32S, AT(pages.kv_indices), false, NULL},             \
      {"last_page_len", INT32S, AT(pages.last_page_len), false, NULL},       \
      {"cu_seqlens_q", INT32S, AT(cu_seqlens_q), false, NULL}, LAYER_ARGUMENTS
#define RAGGED_ARGUMENTS                                                                      \
  {"q", VALUES, AT(q), true, NULL}, {"k", KEYS, AT(k), true, NULL},                           \
      {"v", KEYS, AT(v), true, NULL}, {"cu_seqlens_q", INT32S, AT(cu_seqlens_q), true, NULL}, \
      {"cu_seqlens_k", INT32S, AT(cu_seqlens_k), true, NULL}, LAYER_ARGUMENTS

static const Argument paged_arguments[] = {PAGED_ARGUMENTS, OUTPUTS};
static const Argument ragged_arguments[] = {RAGGED_ARGUMENTS, OUTPUTS};
static const Argument judged_paged_arguments[] = {PAGED_ARGUMENTS, JUDGED};
static const Argument judged_ragged_arguments[] = {RAGGED_ARGUMENTS, JUDGED};
#undef AT

static sg_status run_paged(const void* members, DLTensor* out, DLTensor* lse, sg_report** report) {
  const Attention* a = members;
  return sg_paged_attention(a->q, &a->cache, &a->pages, a->cu_seqlens_q, &a->params, out, lse,
                            report);
}

static sg_status run_ragged(const void* members, DLTensor* out, DLTensor* lse, sg_report** report) {
  const Attention* a = members;
  return sg_ragged_attention(a->q, a->k, a->v, a->cu_seqlens_q, a->cu_seqlens_k, &a->params, out,
                             lse, report);
}

static sg_status judge_paged_results(const Attention* a, sg_report** report) {
  return sg_judge_paged(a->q, &a->cache, &a->pages, a->cu_seqlens_q, &a->params, a->judged_out,
                        a->judged_lse, a->arithmetic, report);
}

static sg_status judge_ragged_results(const Attention* a, sg_report** report) {
  return sg_judge_ragged(a->q, a->k, a->v, a->cu_seqlens_q, a->cu_seqlens_k, &a->params,
                         a->judged_out, a->judged_lse, a->arithmetic, report);
}

/* The last axis of a tensor of so many; -1: it has another rank. */
static int64_t last_axis(const DLTensor* t, int axes) {
  return t != NULL && t->ndim == axes ? t->shape[axes - 1] : -1;
}

static int64_t head_dim_vo(const Attention* a) {
  if (a->v != NULL) return last_axis(a->v, 3);
  switch (a->cache.layout) {
    case SG_NHD:
    case SG_HND: return last_axis(a->cache.v, 4);
    case SG_STACKED_NHD:
    case SG_STACKED_HND: return last_axis(a->cache.k, 5);
    default: return a->cache.head_dim_vo;
  }
}

#define ATTENTION                                                             \
  {                                                                           \
    .cache = SG_CACHE_INIT, .pages = SG_PAGES_INIT, .params = SG_PARAMS_INIT, \
    .terms = SG_TERMS_INIT                                                    \
  }

static PyObject* attend(Function* function, Run* run, PyObject* const* given, Py_ssize_t positional,
                        PyObject* names) {
  View views[MAX_VIEWS];
  Call call = CALL(views);
  Attention a = ATTENTION;
  PyObject* result = NULL;
  if (take_arguments(&call, function, &a, given, positional, names) &&
      settle_threads(&a.params.num_threads)) {
    a.params.terms = &a.terms;
    const bool shaped = a.q->ndim == 3;
    const Outputs outputs = {
        a.q,
        {shaped ? a.q->shape[0] : -1, shaped ? a.q->shape[1] : -1, head_dim_vo(&a)},
        a.out,
        a.lse};
    result = run_call(&call, &outputs, run, &a);
  }
  call_clear(&call);
  return result;
}

/* What somebody else left of a call. */
static PyObject* judge_results(Function* function,
                               sg_status (*judge)(const Attention* a, sg_report** report),
                               PyObject* const* given, Py_ssize_t positional, PyObject* names) {
  View views[MAX_VIEWS];
  Call call = CALL(views);
  Attention a = ATTENTION;
  PyObject* result = NULL;
  if (take_arguments(&call, function, &a, given, positional, names)) {
    a.params.terms = &a.terms;
    sg_report* report = NULL;
    PyThreadState* const released = PyEval_SaveThread();
    const sg_status status = judge(&a, &report);
    PyEval_RestoreThread(released);
    result = verdict(call.function, status, report);
  }
  call_clear(&call);
  return result;
}

FUNCTION(judge_paged, judged_paged_arguments, 2);
static PyObject* call_judge_paged(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                                  PyObject* names) {
  (void)module;
  return judge_results(&judge_paged, judge_paged_results, given, positional, names);
}

FUNCTION(judge_ragged, judged_ragged_arguments, 5);
static PyObject* call_judge_ragged(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                                   PyObject* names) {
  (void)module;
  return judge_results(&judge_ragged, judge_ragged_results, given, positional, names);
}

FUNCTION(paged_attention, paged_arguments, 2);
static PyObject* call_paged_attention(PyObject* module, PyObject* const* given,
                                      Py_ssize_t positional, PyObject* names) {
  (void)module;
  return attend(&paged_attention, run_paged, given, positional, names);
}

FUNCTION(ragged_attention, ragged_arguments, 5);
static PyObject* call_ragged_attention(PyObject* module, PyObject* const* given,
                                       Py_ssize_t positional, PyObject* names) {
  (void)module;
  return attend(&ragged_attention, run_ragged, given, positional, names);
}

/* Merges, stores and copies. */

typedef struct {
  const DLTensor *v, *s;
  int32_t base2;
  PyObject *out, *lse;
} Merge;

static const Argument merge_arguments[] = {
    {"v", VALUES, offsetof(Merge, v), true, NULL},
    {"s", TENSOR, offsetof(Merge, s), true, NULL},
    {"base2", TRUTH, offsetof(Merge, base2), false, NULL},
    {"out", OBJECT, offsetof(Merge, out), false, NULL},
    {"lse", OBJECT, offsetof(Merge, lse), false, NULL},
    {"dtype", DTYPE, 0, false, NULL},
};

static sg_status run_merge(const void* members, DLTensor* out, DLTensor* lse, sg_report** report) {
  const Merge* m = members;
  return sg_merge_states(m->v, m->s, m->base2, out, lse, report);
}

FUNCTION(merge_states, merge_arguments, 2);
static PyObject* call_merge_states(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                                   PyObject* names) {
  (void)module;
  View views[4];
  Call call = CALL(views);
  Merge m = {0};
  PyObject* result = NULL;
  if (take_arguments(&call, &merge_states, &m, given, positional, names) && settle_threads(NULL)) {
    const bool shaped = m.v->ndim == 4;
    const Outputs outputs = {
        m.v,
        {shaped ? m.v->shape[0] : -1, shaped ? m.v->shape[2] : -1, last_axis(m.v, 4)},
        m.out,
        m.lse};
    result = run_call(&call, &outputs, run_merge, &m);
  }
  call_clear(&call);
  return result;
}

typedef struct {
  const DLTensor *k, *v, *out_cache_loc;
  sg_cache cache;
  int64_t first_slot;
} Store;

static const Argument store_arguments[] = {
    {"k", VALUES, offsetof(Store, k), true, NULL},
    {"v", VALUES, offsetof(Store, v), false, NULL},
    {"out_cache_loc", INT64S, offsetof(Store, out_cache_loc), true, NULL},
    {"cache", WRITTEN_CACHE, offsetof(Store, cache), true, NULL},
    {"first_slot", INT64, offsetof(Store, first_slot), false, NULL},
    {"dtype", DTYPE, 0, false, NULL},
    {"kv_dtype", KV_DTYPE, 0, false, NULL},
};

FUNCTION(store_kv, store_arguments, 4);
static PyObject* call_store_kv(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                               PyObject* names) {
  (void)module;
  View views[8];
  Call call = CALL(views);
  Store s = {.cache = SG_CACHE_INIT};
  bool good =
      take_arguments(&call, &store_kv, &s, given, positional, names) && settle_threads(NULL);
  if (good) {
    sg_report* report = NULL;
    PyThreadState* const released = PyEval_SaveThread();
    const sg_status status =
        sg_store_kv(s.k, s.v, s.out_cache_loc, &s.cache, s.first_slot, &report);
    PyEval_RestoreThread(released);
    good = succeeded(call.function, status, report);
  }
  call_clear(&call);
  return good ? Py_NewRef(Py_None) : NULL;
}

typedef struct {
  sg_cache source, target;
  const DLTensor *source_pages, *target_pages;
} Copy;

static const Argument copy_arguments[] = {
    {"source", CACHE, offsetof(Copy, source), true, NULL},
    {"target", WRITTEN_CACHE, offsetof(Copy, target), true, NULL},
    {"source_pages", INT32S, offsetof(Copy, source_pages), false, NULL},
    {"target_pages", INT32S, offsetof(Copy, target_pages), false, NULL},
    {"kv_dtype", KV_DTYPE, 0, false, NULL},
};

FUNCTION(copy_kv, copy_arguments, 4);
static PyObject* call_copy_kv(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                              PyObject* names) {
  (void)module;
  View views[12];
  Call call = CALL(views);
  Copy c = {.source = SG_CACHE_INIT, .target = SG_CACHE_INIT};
  bool good = take_arguments(&call, &copy_kv, &c, given, positional, names) && settle_threads(NULL);
  if (good) {
    sg_report* report = NULL;
    PyThreadState* const released = PyEval_SaveThread();
    const sg_status status =
        sg_copy_kv(&c.source, &c.target, c.source_pages, c.target_pages, &report);
    PyEval_RestoreThread(released);
    good = succeeded(call.function, status, report);
  }
  call_clear(&call);
  return good ? Py_NewRef(Py_None) : NULL;
}

PyMethodDef attention_functions[] = {
    FAST(paged_attention), FAST(ragged_attention), FAST(judge_paged), FAST(judge_ragged),
    FAST(merge_states),    FAST(store_kv),         FAST(copy_kv),     {NULL, NULL, 0, NULL},
};
