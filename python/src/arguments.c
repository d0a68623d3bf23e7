#include "arguments.h"

#include <stdint.h>
#include <string.h>

#include "shadowgraph.h"

static const char* const layouts[] = {"NHD",        "HND",    "STACKED_NHD", "STACKED_HND",
                                      "MLA_LATENT", "PANELS", NULL};
static const char* const dtypes[] = {"f16", "bf16", "e4m3", "e5m2", NULL};
static const DLDataType dtype_types[] = {
    {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {10, 8, 1}, {12, 8, 1}};

static const Argument cache_members[] = {
    {"k_cache", KEYS, offsetof(sg_cache, k), true, NULL},
    {"v_cache", KEYS, offsetof(sg_cache, v), false, NULL},
    {"layout", WORD, offsetof(sg_cache, layout), false, layouts},
    {"head_dim_vo", INT, offsetof(sg_cache, head_dim_vo), false, NULL},
    {"head_dim_qk", INT, offsetof(sg_cache, head_dim_qk), false, NULL},
    {"k_scales", TENSOR, offsetof(sg_cache, k_scales), false, NULL},
    {"v_scales", TENSOR, offsetof(sg_cache, v_scales), false, NULL},
    {"k_scale", FLOAT, offsetof(sg_cache, k_scale), false, NULL},
    {"v_scale", FLOAT, offsetof(sg_cache, v_scale), false, NULL},
};
enum { CACHE_MEMBERS = sizeof cache_members / sizeof cache_members[0] };

static bool refuse_type(const Call* call, const char* name, PyObject* object,
                        const char* expected) {
  PyErr_Format(PyExc_TypeError, "%s: %s is a %R, expected %s", call->function, name,
               (PyObject*)Py_TYPE(object), expected);
  return false;
}

DLTensor* take_view(Call* call, PyObject* object, const Want* want) {
  if (call->num_views == call->max_views) {
    PyErr_Format(PyExc_ValueError, "%s: too many tensors", call->function);
    return NULL;
  }
  View* view = &call->views[call->num_views++];
  view->owner = NULL, view->numbers = NULL;
  return view_read(view, object, want) ? &view->tensor : NULL;
}

void call_clear(Call* call) {
  while (call->num_views > 0) view_clear(&call->views[--call->num_views]);
}

/* The place of a word; -1: an exception is set. */
static int word_of(const Call* call, const char* name, PyObject* object, const char* const* words) {
  if (!PyUnicode_Check(object)) {
    refuse_type(call, name, object, "a str");
    return -1;
  }
  for (int i = 0; words[i] != NULL; ++i)
    if (PyUnicode_CompareWithASCIIString(object, words[i]) == 0) return i;
  char all[128] = "";
  for (int i = 0; words[i] != NULL; ++i) {
    if (i > 0) strcat(all, ", ");
    strcat(all, words[i]);
  }
  PyErr_Format(PyExc_ValueError, "%s: %s is %R, expected one of %s", call->function, name, object,
               all);
  return -1;
}

static bool take_number(const Call* call, const Argument* argument, PyObject* object,
                        void* member) {
  if (argument->kind == FLOAT) {
    const double value = PyFloat_AsDouble(object);
    *(float*)member = (float)value;
  } else {
    const long long value = PyLong_AsLongLong(object);
    if (argument->kind == INT64)
      *(int64_t*)member = value;
    else if (!PyErr_Occurred() && (value < INT32_MIN || value > INT32_MAX))
      PyErr_Format(PyExc_OverflowError, "%s: %s is %R, expected a number of 32 bits",
                   call->function, argument->name, object);
    else
      *(int32_t*)member = (int32_t)value;
  }
  if (!PyErr_Occurred()) return true;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    return refuse_type(call, argument->name, object,
                       argument->kind == FLOAT ? "a number" : "an integer");
  }
  return false;
}

static bool take_member(Call* call, const Argument* argument, PyObject* object, char* members,
                        bool written);

/* A tuple, from the first member on. */
static bool take_cache(Call* call, const Argument* argument, PyObject* object, sg_cache* cache) {
  const Py_ssize_t size = PyTuple_Check(object) ? PyTuple_Size(object) : 0;
  if (size < 1 || size > CACHE_MEMBERS)
    return refuse_type(call, argument->name, object, "a tuple (k_cache, v_cache, ...) or a Cache");
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GetItem(object, i);
    if (item != Py_None &&
        !take_member(call, &cache_members[i], item, (char*)cache, argument->kind == WRITTEN_CACHE))
      return false;
  }
  return true;
}

static bool take_view_of(Call* call, const Argument* argument, PyObject* object,
                         const DLTensor** member, bool written) {
  Want want = {.function = call->function, .name = argument->name, .written = written};
  switch (argument->kind) {
    case VALUES: want.held = call->held; break;
    case KEYS: want.held = call->kv_held; break;
    case INT32S: want.list = 'i'; break;
    case INT64S: want.list = 'l'; break;
    case FLOATS: want.list = 'f'; break;
    default: break;
  }
  *member = take_view(call, object, &want);
  return *member != NULL;
}

/* written: tensors of a cache that the call writes. */
static bool take_member(Call* call, const Argument* argument, PyObject* object, char* members,
                        bool written) {
  void* member = members + argument->member;
  int place;
  switch (argument->kind) {
    case CACHE:
    case WRITTEN_CACHE: return take_cache(call, argument, object, member);
    case OBJECT: *(PyObject**)member = object; return true;
    case INT:
    case INT64:
    case FLOAT: return take_number(call, argument, object, member);
    case TRUTH:
      place = PyObject_IsTrue(object);
      *(int32_t*)member = place;
      return place >= 0;
    case TEXT:
      if (!PyUnicode_Check(object)) return refuse_type(call, argument->name, object, "a str");
      *(const char**)member = PyUnicode_AsUTF8AndSize(object, NULL);
      return *(const char**)member != NULL;
    case DTYPE:
    case KV_DTYPE:
      place = word_of(call, argument->name, object, dtypes);
      if (place >= 0)
        *(argument->kind == DTYPE ? &call->held : &call->kv_held) = dtype_types[place];
      return place >= 0;
    case WORD:
      place = word_of(call, argument->name, object, argument->words);
      if (place >= 0) *(int32_t*)member = place;
      return place >= 0;
    default: return take_view_of(call, argument, object, member, written);
  }
}

static bool intern_names(Function* function) {
  function->keys = PyMem_Calloc((size_t)function->count, sizeof(PyObject*));
  if (function->keys == NULL) return PyErr_NoMemory() != NULL;
  for (int i = 0; i < function->count; ++i) {
    function->keys[i] = PyUnicode_InternFromString(function->arguments[i].name);
    if (function->keys[i] == NULL) return false;
  }
  return true;
}

/* The place of a name; callers mostly name arguments in the order of the table, so the search
 * begins at `from`. */
static int place_of(const Function* function, PyObject* name, int from) {
  for (int i = 0; i < function->count; ++i) {
    const int at = from + i < function->count ? from + i : from + i - function->count;
    if (function->keys[at] == name) return at;
  }
  for (int i = 0; i < function->count; ++i)
    if (PyUnicode_Compare(function->keys[i], name) == 0) return i;
  return -1;
}

static bool place_arguments(Function* function, PyObject* const* given, Py_ssize_t positional,
                            PyObject* names, PyObject** placed) {
  if (function->keys == NULL && !intern_names(function)) return false;
  if (positional > function->positional) {
    PyErr_Format(PyExc_TypeError, "%s: %zd arguments without a name, expected at most %d",
                 function->name, positional, function->positional);
    return false;
  }
  for (Py_ssize_t i = 0; i < positional; ++i) placed[i] = given[i];
  const Py_ssize_t count = names == NULL ? 0 : PyTuple_Size(names);
  int at = (int)positional - 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    at = place_of(function, name, at + 1 < function->count ? at + 1 : 0);
    if (at >= 0 && placed[at] == NULL) {
      placed[at] = given[positional + i];
      continue;
    }
    PyErr_Format(PyExc_TypeError, at < 0 ? "%s: no argument is called %U" : "%s: %U is given twice",
                 function->name, name);
    return false;
  }
  return true;
}

bool take_arguments(Call* call, Function* function, void* members, PyObject* const* given,
                    Py_ssize_t positional, PyObject* names) {
  PyObject* placed[MAX_ARGUMENTS] = {NULL};
  call->function = function->name;
  if (!place_arguments(function, given, positional, names, placed)) return false;
  /* Tensors come last: a dtype says what they hold. */
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < function->count; ++i) {
      const Argument* argument = &function->arguments[i];
      const bool dtype = argument->kind == DTYPE || argument->kind == KV_DTYPE;
      if (dtype != (pass == 0)) continue;
      if (placed[i] != NULL && placed[i] != Py_None) {
        if (!take_member(call, argument, placed[i], members, false)) return false;
      } else if (argument->needed) {
        PyErr_Format(PyExc_TypeError, "%s: %s is missing", function->name, argument->name);
        return false;
      }
    }
  }
  return true;
}
