/* shadowgraph._core: the functions of the C ABI. _core.pyi beside the package documents each. */
#include "core.h"

#include <stdint.h>
#include <string.h>

/* A status becomes None, a report or an exception. */

const char report_name[] = "shadowgraph.report";

static void free_report(PyObject* capsule) {
  sg_report_free(PyCapsule_GetPointer(capsule, report_name));
}

PyObject* report_handle(sg_report* report) {
  if (report == NULL) return Py_NewRef(Py_None);
  PyObject* handle = PyCapsule_New(report, report_name, free_report);
  if (handle == NULL) sg_report_free(report);
  return handle;
}

void* handle_of(PyObject* object, const char* name) {
  if (PyCapsule_IsValid(object, name)) return PyCapsule_GetPointer(object, name);
  PyErr_Format(PyExc_TypeError, "a %R is no handle of a %s", (PyObject*)Py_TYPE(object), name);
  return NULL;
}

bool report_of(PyObject* handle, sg_report** report) {
  *report = handle == Py_None ? NULL : handle_of(handle, report_name);
  return handle == Py_None || *report != NULL;
}

/* Sets the ShadowgraphError that a function of shadowgraph.report makes. */
static void raise_made(const char* maker, const char* format, const void* of) {
  PyObject* module = PyImport_ImportModule("shadowgraph.report");
  PyObject* error = module == NULL ? NULL : PyObject_CallMethod(module, maker, format, of);
  if (error != NULL) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(module), Py_XDECREF(error);
}

/* Of the findings. */
static void raise_findings(sg_report* report) {
  PyObject* handle = report_handle(report);
  if (handle != NULL) raise_made("refusal", "O", handle);
  Py_XDECREF(handle);
}

bool succeeded(const char* function, sg_status status, sg_report* report) {
  if (status == SG_OK) {
    sg_report_free(report);
    return true;
  }
  if (status == SG_INTERNAL) {
    PyErr_Format(strstr(sg_last_error(), "memory") != NULL ? PyExc_MemoryError : PyExc_SystemError,
                 "%s: %s", function, sg_last_error());
    sg_report_free(report);
  } else if (report != NULL) {
    raise_findings(report);
  } else if (status == SG_BAD_INPUT) { /* of a call that hands out no report */
    raise_made("ShadowgraphError", "s", sg_last_error());
  } else {
    PyErr_Format(PyExc_ValueError, "%s: %s", function, sg_last_error());
  }
  return false;
}

PyObject* verdict(const char* function, sg_status status, sg_report* report) {
  if (status == SG_OK || status == SG_FINDINGS) return report_handle(report);
  succeeded(function, status, report);
  return NULL;
}

PyObject* done(const char* function, sg_status status) {
  return succeeded(function, status, NULL) ? Py_NewRef(Py_None) : NULL;
}

/* Threads. */

static struct {
  int32_t asked; /* by set_num_threads; 0: nothing was asked for */
  int32_t cpus;  /* of this process */
  int32_t set;   /* what the library was told last */
  bool forked, warned;
} threads;

bool settle_threads(int32_t* num_threads) {
  if (threads.forked) {
    if (num_threads != NULL) *num_threads = 1;
    if (threads.warned) return true;
    threads.warned = true;
    return PyErr_WarnEx(PyExc_RuntimeWarning,
                        "shadowgraph computes with one thread in a forked process: OpenMP's "
                        "threads did not come along. "
                        "Start it by multiprocessing's 'spawn' or 'forkserver' for more",
                        1) == 0;
  }
  if (num_threads != NULL && *num_threads != 0) return true;
  int32_t wanted = threads.asked;
  if (wanted == 0) {
    const long of_torch = torch_num_threads();
    if (of_torch < 0) return false;
    if (of_torch > 0) wanted = of_torch < threads.cpus ? (int32_t)of_torch : threads.cpus;
  }
  if (wanted != threads.set) sg_set_num_threads(threads.set = wanted);
  return true;
}

static PyObject* after_fork(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  threads.forked = true, threads.warned = false;
  sg_set_num_threads(threads.set = 1);
  Py_RETURN_NONE;
}

static PyObject* set_num_threads(PyObject* module, PyObject* number) {
  (void)module;
  const long value = PyLong_AsLong(number);
  if (PyErr_Occurred()) return NULL;
  if (value < 0 || value > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "set_num_threads: num_threads is %ld, expected at least 0",
                 value);
    return NULL;
  }
  threads.asked = (int32_t)value;
  Py_RETURN_NONE;
}

/* The program and the machine. */

static PyObject* run_main(PyObject* module, PyObject* argv) {
  (void)module;
  PyObject* words = PySequence_Tuple(argv);
  if (words == NULL) return NULL;
  const Py_ssize_t count = PyTuple_Size(words);
  const char** texts = PyMem_Calloc((size_t)count + 1, sizeof *texts);
  bool good = texts != NULL || PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < count && good; ++i)
    good = (texts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(words, i), NULL)) != NULL;
  int32_t code = 0;
  if (good) {
    PyThreadState* const released = PyEval_SaveThread();
    code = sg_main((int32_t)count, texts);
    PyEval_RestoreThread(released);
  }
  PyMem_Free(texts);
  Py_DECREF(words);
  return good ? PyLong_FromLong(code) : NULL;
}

static PyObject* isa(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyUnicode_FromString(sg_isa());
}

static PyObject* set_isa(PyObject* module, PyObject* name) {
  (void)module;
  const char* text = PyUnicode_AsUTF8AndSize(name, NULL);
  if (text == NULL) return NULL;
  if (sg_set_isa(text) == SG_OK) return Py_NewRef(Py_None);
  PyErr_Format(PyExc_ValueError, "set_isa: %s", sg_last_error());
  return NULL;
}

static PyObject* version(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyUnicode_FromString(sg_version());
}

static PyObject* abi_version(PyObject* module, PyObject* unused) {
  (void)module, (void)unused;
  return PyLong_FromUnsignedLong(sg_abi_version());
}

static PyMethodDef system_functions[] = {
    {"main", run_main, METH_O, NULL},
    {"set_num_threads", set_num_threads, METH_O, NULL},
    {"isa", isa, METH_NOARGS, NULL},
    {"set_isa", set_isa, METH_O, NULL},
    {"version", version, METH_NOARGS, NULL},
    {"abi_version", abi_version, METH_NOARGS, NULL},
    {"_after_fork", after_fork, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "shadowgraph._core",
                                        .m_size = -1,
                                        .m_methods = system_functions};

/* How many CPUs this process may use, and what a child that it forks has to know. */
static bool meet_the_system(PyObject* module) {
  PyObject* os = PyImport_ImportModule("os");
  PyObject* cpus = os == NULL ? NULL : PyObject_CallMethod(os, "sched_getaffinity", "i", 0);
  PyObject* hook = cpus == NULL ? NULL : PyObject_GetAttrString(module, "_after_fork");
  PyObject* register_at_fork = hook == NULL ? NULL : PyObject_GetAttrString(os, "register_at_fork");
  PyObject* names =
      register_at_fork == NULL ? NULL : Py_BuildValue("{s:O}", "after_in_child", hook);
  PyObject* nothing = names == NULL ? NULL : PyTuple_New(0);
  PyObject* none = nothing == NULL ? NULL : PyObject_Call(register_at_fork, nothing, names);
  if (none != NULL) threads.cpus = (int32_t)PyObject_Size(cpus);
  const bool good = none != NULL;
  Py_XDECREF(os), Py_XDECREF(cpus), Py_XDECREF(hook), Py_XDECREF(register_at_fork);
  Py_XDECREF(names), Py_XDECREF(nothing), Py_XDECREF(none);
  return good;
}

PyMODINIT_FUNC PyInit__core(void) {
  PyObject* module = tensors_init() ? PyModule_Create(&definition) : NULL;
  if (module == NULL) return NULL;
  if (PyModule_AddFunctions(module, attention_functions) != 0 ||
      PyModule_AddFunctions(module, batch_functions) != 0 ||
      PyModule_AddFunctions(module, judge_functions) != 0 || !meet_the_system(module))
    Py_CLEAR(module);
  return module;
}
