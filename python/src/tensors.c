#include "tensors.h"

#include <stdint.h>
#include <string.h>

/* NumPy's, of __array_struct__: its stable interface to C. */
typedef struct {
  int two, nd;
  char typekind;
  int itemsize, flags;
  Py_ssize_t *shape, *strides;
  void* data;
  PyObject* descr;
} ArrayStruct;
enum { NUMPY_NOT_SWAPPED = 0x200, NUMPY_WRITEABLE = 0x400 };

enum { CODE_BOOL = 6, CODE_E4M3FN = 10, CODE_E5M2 = 12 }; /* behind DLPack 0.6's */
static const DLDataType unknown_type = {kDLOpaqueHandle, 8, 1};

static struct {
  PyObject *dtype, *shape, *is_cpu, *device, *type, *new_empty, *array_struct, *dlpack, *name,
      *torch;
} word;

/* Filled when torch is first seen. */
static struct {
  PyTypeObject* tensor;
  PyObject *stride, *data_ptr, *get_num_threads, *as_f32;
  struct {
    PyObject* dtype;
    DLDataType type;
  } types[16];
} torch;

static const struct {
  const char* name;
  DLDataType type;
} names[] = {{"float32", {kDLFloat, 32, 1}},     {"float16", {kDLFloat, 16, 1}},
             {"bfloat16", {kDLBfloat, 16, 1}},   {"int32", {kDLInt, 32, 1}},
             {"int64", {kDLInt, 64, 1}},         {"bool", {CODE_BOOL, 8, 1}},
             {"uint8", {kDLUInt, 8, 1}},         {"float8_e4m3fn", {CODE_E4M3FN, 8, 1}},
             {"float8_e5m2", {CODE_E5M2, 8, 1}}, {"int8", {kDLInt, 8, 1}},
             {"int16", {kDLInt, 16, 1}},         {"float64", {kDLFloat, 64, 1}},
             {"uint16", {kDLUInt, 16, 1}},       {"uint32", {kDLUInt, 32, 1}},
             {"uint64", {kDLUInt, 64, 1}}};
enum { NUM_NAMES = sizeof names / sizeof names[0] };

bool tensors_init(void) {
  word.dtype = PyUnicode_InternFromString("dtype");
  word.shape = PyUnicode_InternFromString("shape");
  word.is_cpu = PyUnicode_InternFromString("is_cpu");
  word.device = PyUnicode_InternFromString("device");
  word.type = PyUnicode_InternFromString("type");
  word.new_empty = PyUnicode_InternFromString("new_empty");
  word.array_struct = PyUnicode_InternFromString("__array_struct__");
  word.dlpack = PyUnicode_InternFromString("__dlpack__");
  word.name = PyUnicode_InternFromString("name");
  word.torch = PyUnicode_InternFromString("torch");
  return !PyErr_Occurred();
}

/* Takes what this file needs of torch, if torch is loaded and whole: it may be in the middle of its
 * own import. */
static bool find_torch(void) {
  if (torch.tensor != NULL) return true;
  PyObject* module = PyImport_GetModule(word.torch);
  if (module == NULL) {
    PyErr_Clear();
    return false;
  }
  PyObject* tensor = PyObject_GetAttrString(module, "Tensor");
  PyObject* get_num_threads = PyObject_GetAttrString(module, "get_num_threads");
  PyObject* stride = tensor == NULL ? NULL : PyObject_GetAttrString(tensor, "stride");
  PyObject* data_ptr = tensor == NULL ? NULL : PyObject_GetAttrString(tensor, "data_ptr");
  int known = 0;
  for (int i = 0; i < NUM_NAMES && tensor != NULL; ++i) {
    PyObject* dtype = PyObject_GetAttrString(module, names[i].name);
    PyErr_Clear(); /* an older torch lacks some */
    if (dtype == NULL) continue;
    torch.types[known].dtype = dtype; /* kept: the types live as long as torch */
    torch.types[known++].type = names[i].type;
  }
  PyObject* as_f32 = known == 0 ? NULL : Py_BuildValue("{s:O}", "dtype", torch.types[0].dtype);
  Py_DECREF(module);
  if (get_num_threads == NULL || stride == NULL || data_ptr == NULL || as_f32 == NULL ||
      !PyType_Check(tensor)) {
    PyErr_Clear();
    Py_XDECREF(tensor), Py_XDECREF(get_num_threads), Py_XDECREF(stride), Py_XDECREF(data_ptr),
        Py_XDECREF(as_f32);
    return false;
  }
  torch.stride = stride, torch.data_ptr = data_ptr, torch.get_num_threads = get_num_threads,
  torch.as_f32 = as_f32;
  torch.tensor = (PyTypeObject*)tensor;
  return true;
}

static bool is_torch(PyObject* object) {
  return torch.tensor != NULL &&
         (Py_TYPE(object) == torch.tensor || PyType_IsSubtype(Py_TYPE(object), torch.tensor));
}

long torch_num_threads(void) {
  if (!find_torch()) return 0;
  PyObject* number = PyObject_CallNoArgs(torch.get_num_threads);
  if (number == NULL) return -1;
  const long threads = PyLong_AsLong(number);
  Py_DECREF(number);
  return threads;
}

static bool refuse(const Want* want, const char* what) {
  PyErr_Format(PyExc_ValueError, "%s: %s %s", want->function, want->name, what);
  return false;
}

/* Sizes of a tuple of numbers. */
static bool take_sizes(PyObject* tuple, const Want* want, int* axes, int64_t* sizes) {
  if (tuple == NULL) return false;
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count < 0 || count > MAX_AXES) {
    Py_DECREF(tuple);
    return count < 0 ? false : refuse(want, "has more than 8 axes");
  }
  for (Py_ssize_t i = 0; i < count; ++i) sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  *axes = (int)count;
  Py_DECREF(tuple);
  return !PyErr_Occurred();
}

/* The device's number in DLPack where it is not the CPU: the call refuses it. */
static DLDeviceType device_of(PyObject* tensor) {
  PyObject* device = PyObject_GetAttr(tensor, word.device);
  PyObject* type = device == NULL ? NULL : PyObject_GetAttr(device, word.type);
  const bool cuda = type != NULL && PyUnicode_CompareWithASCIIString(type, "cuda") == 0;
  Py_XDECREF(device), Py_XDECREF(type);
  return cuda ? kDLCUDA : kDLExtDev;
}

static bool read_torch(View* view, PyObject* object, const Want* want) {
  DLTensor* t = &view->tensor;
  view->library = FROM_TORCH;
  PyObject* dtype = PyObject_GetAttr(object, word.dtype);
  if (dtype == NULL) return false;
  t->dtype = unknown_type;
  for (int i = 0; i < NUM_NAMES && torch.types[i].dtype != NULL; ++i) {
    if (torch.types[i].dtype != dtype) continue;
    t->dtype = torch.types[i].type;
    break;
  }
  Py_DECREF(dtype);
  int axes = 0;
  if (!take_sizes(PyObject_GetAttr(object, word.shape), want, &t->ndim, view->shape) ||
      !take_sizes(PyObject_CallFunctionObjArgs(torch.stride, object, NULL), want, &axes,
                  view->strides))
    return false;
  PyObject* on_cpu = PyObject_GetAttr(object, word.is_cpu);
  if (on_cpu == NULL) return false;
  const bool here = on_cpu == Py_True;
  Py_DECREF(on_cpu);
  if (!here) { /* its address says nothing, and it may have none */
    t->device.device_type = device_of(object);
    return !PyErr_Occurred();
  }
  PyObject* address = PyObject_CallFunctionObjArgs(torch.data_ptr, object, NULL);
  if (address == NULL) return false;
  t->data = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  return !PyErr_Occurred();
}

/* A type that NumPy knows by name only: ml_dtypes'. */
static DLDataType type_by_name(PyObject* array) {
  DLDataType type = unknown_type;
  PyObject* dtype = PyObject_GetAttr(array, word.dtype);
  PyObject* name = dtype == NULL ? NULL : PyObject_GetAttr(dtype, word.name);
  for (int i = 0; i < NUM_NAMES && name != NULL; ++i)
    if (PyUnicode_CompareWithASCIIString(name, names[i].name) == 0) type = names[i].type;
  Py_XDECREF(dtype), Py_XDECREF(name);
  PyErr_Clear();
  return type;
}

static DLDataType numpy_type(PyObject* array, const ArrayStruct* a) {
  const uint8_t bits = (uint8_t)(8 * a->itemsize);
  switch (a->itemsize > 8 ? 0 : a->typekind) {
    case 'f': return (DLDataType){kDLFloat, bits, 1};
    case 'i': return (DLDataType){kDLInt, bits, 1};
    case 'u': return (DLDataType){kDLUInt, bits, 1};
    case 'b': return (DLDataType){CODE_BOOL, 8, 1};
    default: return type_by_name(array);
  }
}

/* Takes the reference to the capsule. */
static bool read_numpy(View* view, PyObject* object, PyObject* capsule, const Want* want) {
  view->owner = capsule;
  view->library = FROM_NUMPY;
  const ArrayStruct* a = PyCapsule_GetPointer(capsule, NULL);
  if (a == NULL) return false;
  if (a->two != 2 || a->itemsize < 1) return refuse(want, "has elements of no size");
  if (a->nd > MAX_AXES) return refuse(want, "has more than 8 axes");
  if (!(a->flags & NUMPY_NOT_SWAPPED)) return refuse(want, "is not in this machine's byte order");
  if (want->written && !(a->flags & NUMPY_WRITEABLE)) return refuse(want, "is read-only");
  DLTensor* t = &view->tensor;
  t->data = a->data, t->ndim = a->nd, t->dtype = numpy_type(object, a);
  for (int i = 0; i < a->nd; ++i) {
    view->shape[i] = a->shape[i];
    view->strides[i] = a->strides[i] / a->itemsize;
    if (a->strides[i] % a->itemsize != 0 && a->shape[i] > 1)
      return refuse(want, "has strides between its elements");
  }
  return true;
}

static bool read_dlpack(View* view, PyObject* object, const Want* want) {
  view->library = FROM_DLPACK;
  view->owner = PyObject_CallMethodObjArgs(object, word.dlpack, NULL);
  if (view->owner == NULL) return false;
  DLManagedTensor* managed =
      PyCapsule_GetPointer(view->owner, "dltensor"); /* never taken over: it dies with owner */
  if (managed == NULL) return false;
  if (managed->dl_tensor.ndim > MAX_AXES) return refuse(want, "has more than 8 axes");
  int64_t* const strides = managed->dl_tensor.strides;
  view->tensor = managed->dl_tensor;
  for (int i = 0; i < view->tensor.ndim; ++i) view->shape[i] = managed->dl_tensor.shape[i];
  for (int i = 0; strides != NULL && i < view->tensor.ndim; ++i) view->strides[i] = strides[i];
  view->tensor.strides = strides == NULL ? NULL : view->strides;
  return true;
}

/* Says which argument's element is no number. */
static bool refuse_element(PyObject* element, int64_t at, const Want* want) {
  if (PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "%s: %s holds %R at place %lld, expected %s", want->function,
                 want->name, element, (long long)at, want->list == 'f' ? "a number" : "an integer");
  return false;
}

static bool put_number(View* view, int64_t at, PyObject* number, const Want* want) {
  if (want->list == 'f') {
    ((float*)view->numbers)[at] = (float)PyFloat_AsDouble(number);
    return !PyErr_Occurred() || refuse_element(number, at, want);
  }
  const long long value = PyLong_AsLongLong(number);
  if (PyErr_Occurred()) return refuse_element(number, at, want);
  if (want->list == 'l')
    ((int64_t*)view->numbers)[at] = value;
  else if (value < INT32_MIN || value > INT32_MAX)
    return refuse(want, "has a number of more than 32 bits");
  else
    ((int32_t*)view->numbers)[at] = (int32_t)value;
  return true;
}

static bool is_row(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

static bool put_rows(View* view, PyObject* rows, const Want* want) {
  const int64_t width = view->shape[1];
  for (int64_t r = 0; r < view->shape[0]; ++r) {
    PyObject* row = view->tensor.ndim == 1 ? rows : PySequence_GetItem(rows, r);
    if (row == NULL) return false;
    bool good = view->tensor.ndim == 1 || (is_row(row) && PySequence_Size(row) == width);
    if (!good) refuse(want, "has rows of different lengths");
    for (int64_t i = 0; i < width && good; ++i) {
      PyObject* number = PySequence_GetItem(row, i);
      good = number != NULL && put_number(view, r * width + i, number, want);
      Py_XDECREF(number);
    }
    if (view->tensor.ndim != 1) Py_DECREF(row);
    if (!good) return false;
  }
  return true;
}

/* A sequence of numbers, or of rows of numbers. */
static bool read_list(View* view, PyObject* object, const Want* want) {
  const Py_ssize_t size = PySequence_Size(object);
  if (size < 0) return false;
  PyObject* first = size == 0 ? NULL : PySequence_GetItem(object, 0);
  if (size > 0 && first == NULL) return false;
  const bool nested = first != NULL && is_row(first);
  const Py_ssize_t width = nested ? PySequence_Size(first) : size;
  Py_XDECREF(first);
  if (width < 0) return false;
  DLTensor* t = &view->tensor;
  const int bytes = want->list == 'l' ? 8 : 4;
  t->dtype = (DLDataType){want->list == 'f' ? kDLFloat : kDLInt, (uint8_t)(8 * bytes), 1};
  t->ndim = nested ? 2 : 1;
  t->strides = NULL;
  view->shape[0] = nested ? size : 1, view->shape[1] = width;
  view->numbers = t->data = PyMem_Calloc((size_t)(view->shape[0] * width + 1), (size_t)bytes);
  if (view->numbers == NULL) return PyErr_NoMemory() != NULL;
  if (!put_rows(view, object, want)) return false;
  if (!nested) view->shape[0] = width;
  return true;
}

/* Without the exception where there is no such attribute; NULL with an exception set: another
 * failure. */
static PyObject* attribute(PyObject* object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object, name);
  if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return value;
}

static bool read_any(View* view, PyObject* object, const Want* want) {
  if (is_torch(object)) return read_torch(view, object, want);
  if (want->list != 0 && is_row(object)) return read_list(view, object, want);
  PyObject* capsule = attribute(object, word.array_struct);
  if (capsule != NULL) return read_numpy(view, object, capsule, want);
  if (PyErr_Occurred()) return false;
  if (find_torch() && is_torch(object)) return read_torch(view, object, want);
  if (PyObject_HasAttr(object, word.dlpack)) return read_dlpack(view, object, want);
  if (want->list != 0 && PySequence_Check(object) && !PyUnicode_Check(object) &&
      !PyBytes_Check(object))
    return read_list(view, object, want);
  PyErr_Format(PyExc_TypeError, "%s: %s is a %R, expected %s", want->function, want->name,
               (PyObject*)Py_TYPE(object),
               want->list != 0 ? "a tensor or a list of numbers" : "a tensor");
  return false;
}

bool view_read(View* view, PyObject* object, const Want* want) {
  view->tensor = (DLTensor){.device = {kDLCPU, 0}, .strides = view->strides};
  view->object = object;
  if (!read_any(view, object, want)) return false;
  DLTensor* t = &view->tensor;
  t->shape = view->shape; /* strides stay NULL where a reader put that */
  if (want->held.bits != 0 && t->dtype.code == kDLUInt && t->dtype.bits == want->held.bits)
    t->dtype = want->held;
  return true;
}

void view_clear(View* view) {
  Py_XDECREF(view->owner);
  PyMem_Free(view->numbers);
  view->owner = NULL, view->numbers = NULL;
}

static PyObject* numpy_empty(const View* like, PyObject* shape, bool f32) {
  PyObject* numpy = PyImport_ImportModule("numpy");
  if (numpy == NULL) return NULL;
  PyObject* dtype = NULL;
  if (!f32 && like->library == FROM_NUMPY) {
    dtype = PyObject_GetAttr(like->object, word.dtype);
  } else {
    const bool half = !f32 && like->tensor.dtype.code == kDLFloat && like->tensor.dtype.bits == 16;
    dtype = PyUnicode_FromString(half ? "float16" : "float32");
  }
  PyObject* made = dtype == NULL ? NULL : PyObject_CallMethod(numpy, "empty", "OO", shape, dtype);
  Py_XDECREF(dtype);
  Py_DECREF(numpy);
  return made;
}

PyObject* tensor_empty(const View* like, const int64_t* shape, int axes, bool f32) {
  PyObject* sizes = PyTuple_New(axes);
  for (int i = 0; i < axes && sizes != NULL; ++i)
    PyTuple_SetItem(sizes, i, PyLong_FromLongLong(shape[i]));
  if (sizes == NULL || PyErr_Occurred()) {
    Py_XDECREF(sizes);
    return NULL;
  }
  PyObject* made = NULL;
  if (like->library != FROM_TORCH) {
    made = numpy_empty(like, sizes, f32);
  } else if (!f32) {
    made = PyObject_CallMethodObjArgs(like->object, word.new_empty, sizes, NULL);
  } else {
    PyObject* new_empty = PyObject_GetAttr(like->object, word.new_empty);
    PyObject* arguments = PyTuple_Pack(1, sizes);
    if (new_empty != NULL && arguments != NULL)
      made = PyObject_Call(new_empty, arguments, torch.as_f32);
    Py_XDECREF(new_empty), Py_XDECREF(arguments);
  }
  Py_DECREF(sizes);
  return made;
}
