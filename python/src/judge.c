/* The judge, recorded steps and reports. */
#include <stdint.h>

#include "core.h"

static const char step_name[] = "shadowgraph.step";

static void free_step(PyObject* capsule) { sg_step_free(PyCapsule_GetPointer(capsule, step_name)); }

/* The judge. */

typedef struct {
  PyObject *batch, *values, *pad_kv_lens;
  sg_judge_options options;
} Check;

#define AT(member) offsetof(Check, member)
static const Argument check_arguments[] = {
    {"batch", OBJECT, AT(batch), true, NULL},
    {"values", OBJECT, AT(values), true, NULL},
    {"max_context_len", INT, AT(options.max_context_len), false, NULL},
    {"window_left", INT, AT(options.window_left), false, NULL},
    {"pad_kv_lens", OBJECT, AT(pad_kv_lens), false, NULL},
    {"engine", TEXT, AT(options.engine), false, NULL},
};
#undef AT

/* (role, array or number[, unit[, name]]) */
static bool take_role_value(Call* call, PyObject* item, sg_role_value* value) {
  PyObject* object;
  *value = (sg_role_value)SG_ROLE_VALUE_INIT;
  if (!PyTuple_Check(item)) {
    PyErr_Format(PyExc_TypeError, "check: a value is a %R, expected a tuple (role, array)",
                 (PyObject*)Py_TYPE(item));
    return false;
  }
  if (!PyArg_ParseTuple(item, "sO|iz:check", &value->role, &object, &value->unit, &value->name))
    return false;
  if (!PyLong_Check(object)) {
    const Want want = {.function = call->function,
                       .name = value->name != NULL ? value->name : value->role,
                       .list = 'l'};
    value->values = take_view(call, object, &want);
    if (value->values == NULL || value->values->ndim > 0) return value->values != NULL;
    value->values = NULL; /* a number in a tensor's clothes */
  }
  PyObject* number = PyNumber_Index(object);
  if (number == NULL) return false;
  value->number = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

static bool take_check(Call* call, Check* c, PyObject* values, sg_role_value* taken) {
  PyObject* pad = c->pad_kv_lens;
  if (pad != NULL && (!PyTuple_Check(pad) || PyTuple_Size(pad) != 2 ||
                      !PyArg_ParseTuple(pad, "ii:pad_kv_lens", &c->options.pad_kv_least,
                                        &c->options.pad_kv_most))) {
    PyErr_Format(PyExc_TypeError, "check: pad_kv_lens is %R, expected a tuple (least, most)", pad);
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_Size(values); ++i)
    if (!take_role_value(call, PyTuple_GetItem(values, i), &taken[i])) return false;
  return true;
}

/* Judges with memory for as many values as there are. */
static PyObject* check_values(Call* call, Check* c, const sg_batch* batch, PyObject* values) {
  const size_t count = (size_t)PyTuple_Size(values);
  sg_role_value* taken = PyMem_Calloc(count + 1, sizeof *taken);
  call->views = PyMem_Calloc(count + 1, sizeof *call->views);
  call->max_views = (int)count + 1;
  PyObject* result = NULL;
  if (taken == NULL || call->views == NULL) {
    PyErr_NoMemory();
  } else if (take_check(call, c, values, taken)) {
    sg_report* report = NULL;
    PyThreadState* const released = PyEval_SaveThread();
    const sg_status status = sg_check(batch, taken, count, &c->options, &report);
    PyEval_RestoreThread(released);
    result = verdict("check", status, report);
  }
  call_clear(call);
  PyMem_Free(taken), PyMem_Free(call->views);
  return result;
}

FUNCTION(check, check_arguments, 2);
static PyObject* call_check(PyObject* module, PyObject* const* given, Py_ssize_t positional,
                            PyObject* names) {
  (void)module;
  Call call = {0};
  Check c = {.options = SG_JUDGE_INIT};
  if (!take_arguments(&call, &check, &c, given, positional, names)) return NULL;
  const sg_batch* batch = handle_of(c.batch, batch_name);
  PyObject* values = batch == NULL ? NULL : PySequence_Tuple(c.values);
  if (values == NULL) return NULL;
  PyObject* result = check_values(&call, &c, batch, values);
  Py_DECREF(values);
  return result;
}

/* Recorded steps. A step is one thread's at a time. */

static PyObject* step_new(PyObject* module, PyObject* arguments) {
  (void)module;
  const char *backend, *mode, *phase;
  if (!PyArg_ParseTuple(arguments, "sss:step_new", &backend, &mode, &phase)) return NULL;
  sg_step* step = NULL;
  if (!succeeded("step_new", sg_step_new(backend, mode, phase, &step), NULL)) return NULL;
  PyObject* handle = PyCapsule_New(step, step_name, free_step);
  if (handle == NULL) sg_step_free(step);
  return handle;
}

static PyObject* step_id(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* handle;
  const char* id;
  if (!PyArg_ParseTuple(arguments, "Os:step_id", &handle, &id)) return NULL;
  sg_step* step = handle_of(handle, step_name);
  return step == NULL ? NULL : done("step_id", sg_step_id(step, id));
}

static PyObject* step_config(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject *handle, *value;
  const char* key;
  if (!PyArg_ParseTuple(arguments, "OsO:step_config", &handle, &key, &value)) return NULL;
  sg_step* step = handle_of(handle, step_name);
  if (step == NULL) return NULL;
  if (PyUnicode_Check(value)) {
    const char* text = PyUnicode_AsUTF8AndSize(value, NULL);
    return text == NULL ? NULL : done("step_config", sg_step_config_text(step, key, text));
  }
  const long long number = PyLong_AsLongLong(value);
  return PyErr_Occurred() ? NULL : done("step_config", sg_step_config(step, key, number));
}

static PyObject* step_role(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* handle;
  const char *field, *role;
  if (!PyArg_ParseTuple(arguments, "Oss:step_role", &handle, &field, &role)) return NULL;
  sg_step* step = handle_of(handle, step_name);
  return step == NULL ? NULL : done("step_role", sg_step_role(step, field, role));
}

typedef sg_status Put(sg_step* step, const char* key, const DLTensor* tensor);

/* numbers: integers are numbers of the host, not tensors without axes. */
static PyObject* put_tensor(const char* function, PyObject* arguments, Put* put, bool numbers) {
  PyObject *handle, *value;
  const char* key;
  if (!PyArg_ParseTuple(arguments, "OsO", &handle, &key, &value)) return NULL;
  sg_step* step = handle_of(handle, step_name);
  if (step == NULL) return NULL;
  if (numbers && PyLong_Check(value)) {
    const long long number = PyLong_AsLongLong(value);
    return PyErr_Occurred() ? NULL : done(function, sg_step_number(step, key, number));
  }
  View view;
  Call call = {.function = function, .views = &view, .max_views = 1};
  const Want want = {.function = function, .name = key, .list = 'l'};
  const DLTensor* tensor = take_view(&call, value, &want);
  PyObject* result = tensor == NULL ? NULL : done(function, put(step, key, tensor));
  call_clear(&call);
  return result;
}

static PyObject* step_input(PyObject* module, PyObject* arguments) {
  (void)module;
  return put_tensor("step_input", arguments, sg_step_input, false);
}

static PyObject* step_pages(PyObject* module, PyObject* arguments) {
  (void)module;
  return put_tensor("step_pages", arguments, sg_step_pages, false);
}

static PyObject* step_field(PyObject* module, PyObject* arguments) {
  (void)module;
  return put_tensor("step_field", arguments, sg_step_field, true);
}

/* The scheduler's knowledge becomes `input` and `config` of a line. */
static PyObject* step_batch(PyObject* module, PyObject* arguments) {
  (void)module;
  static const struct {
    const char *key, *name;
  } arrays[] = {{"req_to_token", "req_to_token"},   {"req_pool_indices", "req_pool_indices"},
                {"seq_lens", "seq_lens"},           {"extend_seq_lens", "extend_lens"},
                {"out_cache_loc", "out_cache_loc"}, {"positions", "positions"},
                {"encoder_lens", "encoder_lens"},   {"full_to_swa", "full_to_swa"},
                {"custom_mask", "custom_mask"}};
  static const struct {
    const char *key, *name;
  } numbers[] = {{"page_size", "page_size"}, {"pool_pages", "pool_pages"},
                 {"topk", "topk"},           {"num_steps", "num_steps"},
                 {"step_id", "draft_step"},  {"num_draft_tokens", "num_draft_tokens"}};
  PyObject *step_handle, *batch_object;
  if (!PyArg_ParseTuple(arguments, "OO:step_batch", &step_handle, &batch_object)) return NULL;
  sg_step* step = handle_of(step_handle, step_name);
  const sg_batch* batch = step == NULL ? NULL : handle_of(batch_object, batch_name);
  if (batch == NULL) return NULL;
  bool good = true;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays && good; ++i) {
    DLTensor array;
    good = succeeded("step_batch", sg_batch_array(batch, arrays[i].name, &array), NULL);
    if (good && array.shape[0] > 0)
      good = succeeded("step_batch", sg_step_input(step, arrays[i].key, &array), NULL);
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && good; ++i) {
    int64_t number = 0;
    good = succeeded("step_batch", sg_batch_number(batch, numbers[i].name, &number), NULL);
    if (good && number > 0)
      good = succeeded("step_batch", sg_step_config(step, numbers[i].key, number), NULL);
  }
  int64_t prefixes = 0;
  if (good)
    good =
        succeeded("step_batch", sg_batch_number(batch, "seq_lens_are_prefixes", &prefixes), NULL);
  if (!good) return NULL;
  return done("step_batch",
              sg_step_config_text(step, "seq_lens_semantics", prefixes ? "prefix_only" : "full"));
}

static PyObject* step_judge(PyObject* module, PyObject* handle) {
  (void)module;
  const sg_step* step = handle_of(handle, step_name);
  if (step == NULL) return NULL;
  sg_report* report = NULL;
  PyThreadState* const released = PyEval_SaveThread();
  const sg_status status = sg_step_judge(step, &report);
  PyEval_RestoreThread(released);
  return verdict("step_judge", status, report);
}

static PyObject* step_line(PyObject* module, PyObject* handle) {
  (void)module;
  sg_step* step = handle_of(handle, step_name);
  const char* text = NULL;
  size_t size = 0;
  if (step == NULL || !succeeded("step_line", sg_step_line(step, &text, &size), NULL)) return NULL;
  return PyUnicode_FromStringAndSize(text, (Py_ssize_t)size);
}

/* Reports. */

/* None for -1. */
static PyObject* place(int64_t number) {
  return number < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(number);
}

static PyObject* report_findings(PyObject* module, PyObject* handle) {
  (void)module;
  sg_report* report;
  if (!report_of(handle, &report)) return NULL;
  const int64_t size = sg_report_size(report);
  PyObject* all = PyList_New(0);
  for (int64_t i = 0; i < size && all != NULL; ++i) {
    sg_finding f = SG_FINDING_INIT;
    PyObject* finding = NULL;
    if (succeeded("report_findings", sg_report_get(report, i, &f), NULL))
      finding =
          Py_BuildValue("(ssssssssssNNs)", f.id, f.title, f.mend, f.field, f.index, f.expected,
                        f.got, f.refs, f.text, f.severity, place(f.row), place(f.col), f.diagnosis);
    if (finding == NULL || PyList_Append(all, finding) != 0) Py_CLEAR(all);
    Py_XDECREF(finding);
  }
  return all;
}

/* A report of both: a new one, since handles do not change. */
static PyObject* report_add(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject *first, *more;
  const char* id = NULL;
  sg_report *a, *b, *sum = NULL;
  if (!PyArg_ParseTuple(arguments, "OO|z:report_add", &first, &more, &id) ||
      !report_of(first, &a) || !report_of(more, &b))
    return NULL;
  if ((a != NULL && !succeeded("report_add", sg_report_add(&sum, a, NULL), NULL)) ||
      !succeeded("report_add", sg_report_add(&sum, b, id), NULL)) {
    sg_report_free(sum);
    return NULL;
  }
  return report_handle(sum);
}

/* A report of one case: (law, field, row or -1, col or -1, expected, got) of each. */
static PyObject* report_new(PyObject* module, PyObject* findings) {
  (void)module;
  PyObject* all = PySequence_Tuple(findings);
  if (all == NULL) return NULL;
  sg_report* report = NULL;
  bool good = true;
  for (Py_ssize_t i = 0; i < PyTuple_Size(all) && good; ++i) {
    const char *law, *field, *expected, *got;
    long long row, col;
    good = PyArg_ParseTuple(PyTuple_GetItem(all, i), "ssLLss:report_new", &law, &field, &row, &col,
                            &expected, &got) &&
           succeeded("report_new", sg_report_finding(&report, law, field, row, col, expected, got),
                     NULL);
  }
  Py_DECREF(all);
  if (good) return report_handle(report);
  sg_report_free(report);
  return NULL;
}

static PyObject* report_text(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* handle;
  const char* format = "text";
  sg_report* report;
  if (!PyArg_ParseTuple(arguments, "O|s:report_text", &handle, &format) ||
      !report_of(handle, &report))
    return NULL;
  const char* text = sg_report_text(report, format);
  if (text != NULL) return PyUnicode_FromString(text);
  PyErr_Format(PyExc_ValueError, "report_text: %s", sg_last_error());
  return NULL;
}

PyMethodDef judge_functions[] = {
    FAST(check),
    {"step_new", step_new, METH_VARARGS, NULL},
    {"step_id", step_id, METH_VARARGS, NULL},
    {"step_config", step_config, METH_VARARGS, NULL},
    {"step_role", step_role, METH_VARARGS, NULL},
    {"step_input", step_input, METH_VARARGS, NULL},
    {"step_pages", step_pages, METH_VARARGS, NULL},
    {"step_field", step_field, METH_VARARGS, NULL},
    {"step_batch", step_batch, METH_VARARGS, NULL},
    {"step_judge", step_judge, METH_O, NULL},
    {"step_line", step_line, METH_O, NULL},
    {"report_findings", report_findings, METH_O, NULL},
    {"report_add", report_add, METH_VARARGS, NULL},
    {"report_new", report_new, METH_O, NULL},
    {"report_text", report_text, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
