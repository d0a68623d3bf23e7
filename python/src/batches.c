/* Batches, histories and property tests. */
#include <stdint.h>

#include "core.h"

const char batch_name[] = "shadowgraph.batch";

static void free_batch(PyObject* capsule) {
  sg_batch_free(PyCapsule_GetPointer(capsule, batch_name));
}

/* Batches. */

static const char* const kinds[] = {"usual", "full", "prefix", NULL};

#define AT(member) offsetof(sg_batch_params, member)
static const Argument batch_arguments[] = {
    {"mode", TEXT, AT(mode), true, NULL},
    {"page_size", INT, AT(page_size), false, NULL},
    {"pool_pages", INT, AT(pool_pages), false, NULL},
    {"req_to_token", INT64S, AT(req_to_token), false, NULL},
    {"req_pool_indices", INT64S, AT(req_pool_indices), false, NULL},
    {"seq_lens", INT64S, AT(seq_lens), false, NULL},
    {"key_indptr", INT64S, AT(key_indptr), false, NULL},
    {"keys", INT64S, AT(keys), false, NULL},
    {"q_lens", INT64S, AT(q_lens), false, NULL},
    {"out_cache_loc", INT64S, AT(out_cache_loc), false, NULL},
    {"positions", INT64S, AT(positions), false, NULL},
    {"orig_seq_lens", INT64S, AT(orig_seq_lens), false, NULL},
    {"encoder_lens", INT64S, AT(encoder_lens), false, NULL},
    {"full_to_swa", INT64S, AT(full_to_swa), false, NULL},
    {"custom_mask", INT64S, AT(custom_mask), false, NULL},
    {"seq_lens_kind", WORD, AT(seq_lens_kind), false, kinds},
    {"topk", INT, AT(topk), false, NULL},
    {"num_steps", INT, AT(num_steps), false, NULL},
    {"num_draft_tokens", INT, AT(num_draft_tokens), false, NULL},
    {"draft_step", INT, AT(draft_step), false, NULL},
};
#undef AT

static PyObject* batch_handle(sg_batch* batch) {
  PyObject* handle = PyCapsule_New(batch, batch_name, free_batch);
  if (handle == NULL) sg_batch_free(batch);
  return handle;
}

FUNCTION(batch_new, batch_arguments, 1);
static PyObject* call_batch_new(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                                PyObject* names) {
  (void)module;
  View views[16];
  Call call = CALL(views);
  sg_batch_params params = SG_BATCH_INIT;
  sg_batch* batch = NULL;
  bool good = take_arguments(&call, &batch_new, &params, given, positional, names);
  if (good) {
    sg_report* report = NULL;
    PyThreadState* const released = PyEval_SaveThread();
    const sg_status status = sg_batch_new(&params, &batch, &report);
    PyEval_RestoreThread(released);
    good = succeeded(call.function, status, report);
  }
  call_clear(&call);
  return good ? batch_handle(batch) : NULL;
}

typedef struct {
  PyObject* choose;
  bool failed;
} Chooser;

/* After a failure 0, the simplest choice: the history is over soon, and thrown away. */
static uint32_t choose(void* context, uint32_t bound) {
  Chooser* chooser = context;
  if (chooser->failed) return 0;
  PyObject* number = PyObject_CallFunction(chooser->choose, "k", (unsigned long)bound);
  const long long value = number == NULL ? -1 : PyLong_AsLongLong(number);
  Py_XDECREF(number);
  if (!PyErr_Occurred() && (value < 0 || value >= bound))
    PyErr_Format(PyExc_ValueError, "history_draw: choose(%lu) is %lld", (unsigned long)bound,
                 value);
  chooser->failed = PyErr_Occurred() != NULL;
  return chooser->failed ? 0 : (uint32_t)value;
}

/* A list of handles: the steps of a history. */
static PyObject* history_draw(PyObject* module, PyObject* arguments) {
  (void)module;
  const char* options;
  Chooser chooser = {NULL, false};
  if (!PyArg_ParseTuple(arguments, "zO:history_draw", &options, &chooser.choose)) return NULL;
  sg_history* history = NULL;
  sg_report* report = NULL;
  const sg_status status = sg_history_new(options, choose, &chooser, &history, &report);
  PyObject* steps = NULL;
  if (chooser.failed)
    sg_report_free(report);
  else if (succeeded("history_draw", status, report))
    steps = PyList_New(0);
  while (steps != NULL) {
    sg_batch* batch = NULL;
    const sg_status next = sg_history_next(history, &batch);
    if (chooser.failed) {
      sg_batch_free(batch);
      Py_CLEAR(steps);
    } else if (!succeeded("history_draw", next, NULL)) {
      Py_CLEAR(steps);
    } else if (batch == NULL) {
      break;
    } else {
      PyObject* handle = batch_handle(batch);
      if (handle == NULL || PyList_Append(steps, handle) != 0) Py_CLEAR(steps);
      Py_XDECREF(handle);
    }
  }
  sg_history_free(history);
  return steps;
}

static PyObject* batch_mode(PyObject* module, PyObject* handle) {
  (void)module;
  const sg_batch* batch = handle_of(handle, batch_name);
  return batch == NULL ? NULL : PyUnicode_FromString(sg_batch_mode(batch));
}

static PyObject* batch_text(PyObject* module, PyObject* handle) {
  (void)module;
  const sg_batch* batch = handle_of(handle, batch_name);
  return batch == NULL ? NULL : PyUnicode_FromString(sg_batch_text(batch));
}

static PyObject* batch_number(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* handle;
  const char* name;
  if (!PyArg_ParseTuple(arguments, "Os:batch_number", &handle, &name)) return NULL;
  const sg_batch* batch = handle_of(handle, batch_name);
  int64_t number = 0;
  if (batch == NULL || !succeeded("batch_number", sg_batch_number(batch, name, &number), NULL))
    return NULL;
  return PyLong_FromLongLong(number);
}

static PyObject* batch_array(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* handle;
  const char* name;
  if (!PyArg_ParseTuple(arguments, "Os:batch_array", &handle, &name)) return NULL;
  const sg_batch* batch = handle_of(handle, batch_name);
  DLTensor t;
  if (batch == NULL || !succeeded("batch_array", sg_batch_array(batch, name, &t), NULL))
    return NULL;
  const int64_t count = t.shape[0] * (t.ndim == 2 ? t.shape[1] : 1), bytes = t.dtype.bits / 8;
  const char* format = bytes == 8 ? "q" : bytes == 4 ? "i" : "B";
  PyObject* copy = PyBytes_FromStringAndSize(t.data, count * bytes);
  PyObject* flat = copy == NULL ? NULL : PyMemoryView_FromObject(copy);
  PyObject* array = NULL;
  if (flat != NULL)
    array = t.ndim == 2 && count > 0
                ? PyObject_CallMethod(flat, "cast", "s(nn)", format, (Py_ssize_t)t.shape[0],
                                      (Py_ssize_t)t.shape[1])
                : PyObject_CallMethod(flat, "cast", "s", format);
  Py_XDECREF(copy), Py_XDECREF(flat);
  return array;
}

/* Property tests. */

typedef struct {
  PyObject* begin;
  bool failed; /* then every other history is over at once */
} Property;

/* False: an exception is set, or the history is over. */
static bool try_step(PyObject* judge, sg_history* history) {
  sg_batch* batch = NULL;
  if (!succeeded("property_check", sg_history_next(history, &batch), NULL) || batch == NULL)
    return false;
  PyObject* handle = batch_handle(batch);
  PyObject* found = handle == NULL ? NULL : PyObject_CallFunctionObjArgs(judge, handle, NULL);
  sg_report* report = NULL;
  const bool good = found != NULL && report_of(found, &report) &&
                    succeeded("property_check", sg_history_expect(history, report), NULL);
  Py_XDECREF(handle), Py_XDECREF(found);
  return good;
}

static void try_history(void* context, sg_history* history) {
  Property* property = context;
  if (property->failed) return;
  PyObject* judge = PyObject_CallNoArgs(property->begin);
  while (judge != NULL && try_step(judge, history)) continue;
  Py_XDECREF(judge);
  property->failed = PyErr_Occurred() != NULL;
}

static PyObject* property_check(PyObject* module, PyObject* arguments) {
  (void)module;
  const char* options;
  Property property = {NULL, false};
  if (!PyArg_ParseTuple(arguments, "zO:property_check", &options, &property.begin)) return NULL;
  sg_report* report = NULL;
  const sg_status status = sg_property_check(options, try_history, &property, &report);
  if (!property.failed) return verdict("property_check", status, report);
  sg_report_free(report);
  return NULL;
}

PyMethodDef batch_functions[] = {
    FAST(batch_new),
    {"history_draw", history_draw, METH_VARARGS, NULL},
    {"property_check", property_check, METH_VARARGS, NULL},
    {"batch_mode", batch_mode, METH_O, NULL},
    {"batch_text", batch_text, METH_O, NULL},
    {"batch_number", batch_number, METH_VARARGS, NULL},
    {"batch_array", batch_array, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
