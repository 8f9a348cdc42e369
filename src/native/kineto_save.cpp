/* kinetoscope._kineto_save: Kineto's own save, without the GIL, so that training goes on meanwhile; and its true names.
 *
 *     torch's result object ──► the address of what it wraps ──► ProfilerResult::save(path), on a thread of its own
 *                                                           └──► ProfilerResult::traceActivities() ──► the odd names
 *
 * torch's binding of `save` holds the GIL all the while, although what it calls touches no Python object. So this calls
 * the same function of libtorch itself. pybind11's conduit, which is there for extension modules to share C++ objects,
 * gives the address, and only if both sides agree about the ABI and the type. C++ and not C, because the function may
 * throw, and an exception that nobody catches ends the process. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

namespace torch::autograd::profiler {
struct ProfilerResult {}; /* only for its name: pybind11 compares types by it */
} // namespace torch::autograd::profiler

using torch::autograd::profiler::ProfilerResult;
/* How the ABI passes the arguments of member functions. */
using Save = void (*)(void *result, const std::string &path);
using Activities = const std::vector<const void *> *(*)(void *result);
using Number = std::int64_t (*)(const void *activity);
using Name = std::string (*)(const void *activity);

static const char INTERNALS[] = "__pybind11_internals_v";
/* ProfilerResult::save(const std::string &), with the std::string of this compiler's ABI. */
static const char SYMBOL[] =
    "_ZN5torch8autograd8profiler14ProfilerResult4saveERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
/* ProfilerResult::traceActivities() */
static const char ACTIVITIES[] = "_ZN5torch8autograd8profiler14ProfilerResult15traceActivitiesEv";

/* The text by which pybind11 knows the ABI it was built for: its name of what it shares in the interpreter ends with it,
 * as in __pybind11_internals_v11_system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1__. Null with an error set if it is not. */
static PyObject *find_abi()
{
    PyObject *shared = PyInterpreterState_GetDict(PyInterpreterState_Get()), *key, *value; /* borrowed */
    Py_ssize_t position = 0;
    while (shared != nullptr && PyDict_Next(shared, &position, &key, &value)) {
        Py_ssize_t length;
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &length) : nullptr;
        if (name == nullptr || std::strncmp(name, INTERNALS, sizeof INTERNALS - 1) != 0)
            continue;
        const char *abi = std::strchr(name + sizeof INTERNALS - 1, '_');
        const char *end = name + length - 2;
        if (abi != nullptr && abi + 1 < end)
            return PyBytes_FromStringAndSize(abi + 1, end - abi - 1);
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_LookupError, "There is no pybind11 in this process whose ABI is known.");
    return nullptr;
}

/* The address in a capsule that the conduit of `result` gives; null with an error set if it gives none. */
static void *address_of(PyObject *result)
{
    PyObject *abi = find_abi();
    if (abi == nullptr)
        return nullptr;
    PyObject *type = PyCapsule_New(const_cast<std::type_info *>(&typeid(ProfilerResult)), typeid(std::type_info).name(),
                                   nullptr);
    PyObject *found = nullptr;
    if (type != nullptr)
        found = PyObject_CallMethod(result, "_pybind11_conduit_v1_", "OOy", abi, type, "raw_pointer_ephemeral");
    Py_DECREF(abi);
    Py_XDECREF(type);
    if (found == nullptr)
        return nullptr;
    void *address = nullptr;
    if (PyCapsule_CheckExact(found))
        address = PyCapsule_GetPointer(found, typeid(ProfilerResult).name());
    else
        PyErr_SetString(PyExc_TypeError, "This is no result of torch's profiler that this module can use.");
    Py_DECREF(found);
    return address;
}

/* A function in a library that is loaded already; null, with an error set, if it is not there. */
static void *find_function(const char *library, const char *symbol)
{
    void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD), *found = nullptr;
    if (loaded != nullptr) {
        found = dlsym(loaded, symbol);
        dlclose(loaded); /* which only takes back the dlopen: torch itself keeps it loaded */
    }
    if (found == nullptr)
        PyErr_Format(PyExc_LookupError, "%s has no function %s.", library, symbol);
    return found;
}

static Save find_save(const char *library) { return reinterpret_cast<Save>(find_function(library, SYMBOL)); }

/* What went wrong, in words; empty if nothing did. */
static std::string call(Save save, void *result, const std::string &path)
{
    try {
        save(result, path);
        return "";
    } catch (const std::exception &error) {
        return *error.what() ? error.what() : "an exception without a message";
    } catch (...) {
        return "an unknown exception";
    }
}

static PyObject *can_save(PyObject *, PyObject *arguments)
{
    PyObject *result;
    const char *library;
    if (!PyArg_ParseTuple(arguments, "Os", &result, &library))
        return nullptr;
    bool can = find_save(library) != nullptr && address_of(result) != nullptr;
    PyErr_Clear();
    return PyBool_FromLong(can);
}

/* -- a save that goes on beside Python -- */

struct Saving {
    std::thread thread;
    std::string failure;
    PyObject *result;
    Py_buffer is_written;
    int end_to_write;
};

static void give_way(int by)
{
    errno = 0;
    int niceness = getpriority(PRIO_PROCESS, 0); /* of this thread alone, on Linux */
    if (by > 0 && errno == 0)
        setpriority(PRIO_PROCESS, 0, std::min(niceness + by, 19));
}

/* Takes no Python's lock from begin to end: it might hold that while it waits for a processor. */
static void run(Saving *saving, Save function, void *address, std::string path, int gives_way)
{
    give_way(gives_way);
    saving->failure = call(function, address, path);
    *static_cast<volatile char *>(saving->is_written.buf) = 1;
    close(saving->end_to_write);
}

static void join(Saving *saving)
{
    Py_BEGIN_ALLOW_THREADS
    if (saving->thread.joinable())
        saving->thread.join();
    Py_END_ALLOW_THREADS
}

static void forget(PyObject *capsule)
{
    Saving *saving = static_cast<Saving *>(PyCapsule_GetPointer(capsule, nullptr));
    join(saving);
    PyBuffer_Release(&saving->is_written);
    Py_DECREF(saving->result);
    delete saving;
}

static bool start_thread(Saving *saving, Save function, void *address, const char *path,
                         int gives_way)
{
    try {
        saving->thread = std::thread(run, saving, function, address, std::string(path), gives_way);
        return true;
    } catch (const std::exception &error) {
        PyErr_Format(PyExc_RuntimeError, "There is no thread to save on: %s", error.what());
        return false;
    }
}

static PyObject *start(PyObject *, PyObject *arguments)
{
    PyObject *result;
    const char *library, *path;
    Py_buffer is_written;
    int end_to_write, gives_way;
    if (!PyArg_ParseTuple(arguments, "Ossw*ii", &result, &library, &path, &is_written, &end_to_write, &gives_way))
        return nullptr;
    Save function = find_save(library);
    void *address = function == nullptr || is_written.len != 1 ? nullptr : address_of(result);
    if (address == nullptr) {
        PyBuffer_Release(&is_written);
        return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "One byte tells that all is written.");
    }
    Saving *saving = new Saving{{}, {}, Py_NewRef(result), is_written, end_to_write};
    PyObject *capsule = PyCapsule_New(saving, nullptr, forget);
    if (capsule != nullptr && !start_thread(saving, function, address, path, gives_way))
        Py_CLEAR(capsule);
    return capsule;
}

static PyObject *finish(PyObject *, PyObject *capsule)
{
    Saving *saving = static_cast<Saving *>(PyCapsule_GetPointer(capsule, nullptr));
    if (saving == nullptr)
        return nullptr;
    join(saving);
    if (!saving->failure.empty())
        return PyErr_Format(PyExc_RuntimeError, "%s", saving->failure.c_str());
    Py_RETURN_NONE;
}

/* -- true names -- */

/* Where virtual functions of Kineto's activities stand in their table, as torch's own header says. */
struct Slots {
    int name, timestamp, duration;
};

struct OddName {
    std::size_t number;
    std::string name;
    std::int64_t begin, duration;
};

/* Whether Kineto writes a name otherwise: all but printable ASCII without the quote and the backslash. */
static bool is_odd(const std::string &name)
{
    for (char c : name) {
        if (c < ' ' || c > '~' || c == '"' || c == '\\')
            return true;
    }
    return false;
}

template <typename Function> static Function function_of(const void *activity, int slot)
{
    return reinterpret_cast<Function>((*static_cast<void *const *const *>(activity))[slot]);
}

static void collect_odd(Activities activities, void *result, Slots slots, std::vector<OddName> &found)
{
    const std::vector<const void *> *all = activities(result);
    for (std::size_t number = 0; all != nullptr && number < all->size(); number++) {
        const void *activity = (*all)[number];
        std::string name = function_of<Name>(activity, slots.name)(activity);
        if (is_odd(name))
            found.push_back({number, std::move(name), function_of<Number>(activity, slots.timestamp)(activity),
                             function_of<Number>(activity, slots.duration)(activity)});
    }
}

static std::string try_collect(Activities activities, void *result, Slots slots, std::vector<OddName> &found)
{
    try {
        collect_odd(activities, result, slots, found);
        return "";
    } catch (const std::exception &error) {
        return *error.what() ? error.what() : "an exception without a message";
    }
}

static PyObject *list_of(const std::vector<OddName> &found)
{
    PyObject *list = PyList_New(static_cast<Py_ssize_t>(found.size()));
    for (std::size_t i = 0; list != nullptr && i < found.size(); i++) {
        const OddName &odd = found[i];
        PyObject *name = PyUnicode_DecodeUTF8(odd.name.data(), static_cast<Py_ssize_t>(odd.name.size()), "replace");
        PyObject *item = name == nullptr ? nullptr
                                         : Py_BuildValue("nNLL", static_cast<Py_ssize_t>(odd.number), name,
                                                         static_cast<long long>(odd.begin),
                                                         static_cast<long long>(odd.duration));
        if (item == nullptr || PyList_SetItem(list, static_cast<Py_ssize_t>(i), item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *odd_names(PyObject *, PyObject *arguments)
{
    PyObject *result;
    const char *library;
    Slots slots;
    if (!PyArg_ParseTuple(arguments, "Os(iii)", &result, &library, &slots.name, &slots.timestamp, &slots.duration))
        return nullptr;
    /* The first is looked for as well because it tells that both sides mean the same by std::string. */
    void *function = find_save(library) == nullptr ? nullptr : find_function(library, ACTIVITIES);
    void *address = function == nullptr ? nullptr : address_of(result);
    if (address == nullptr)
        return nullptr;
    std::vector<OddName> found;
    std::string failure;
    Py_BEGIN_ALLOW_THREADS
    failure = try_collect(reinterpret_cast<Activities>(function), address, slots, found);
    Py_END_ALLOW_THREADS
    if (!failure.empty())
        return PyErr_Format(PyExc_RuntimeError, "%s", failure.c_str());
    return list_of(found);
}

static PyMethodDef functions[] = {
    {"can_save", can_save, METH_VARARGS, "(result, library): whether `save` knows how to save this."},
    {"start", start, METH_VARARGS,
     "(result, library, path, is_written, fd, gives_way): begins to save a result of torch's, whose libtorch is that library,\n"
     "on a thread of its own, nicer by gives_way. When it is done, it sets the one byte of is_written, and closes fd."},
    {"finish", finish, METH_O, "(what start returned): waits until it is saved; raises RuntimeError if it was not."},
    {"odd_names", odd_names, METH_VARARGS,
     "(result, library, (name, timestamp, duration)): number, name, begin and duration of each activity whose name Kineto\n"
     "writes otherwise; the functions' places in the table of an activity are given."},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kinetoscope._kineto_save", "Kineto's save, without the GIL.",
                                 -1, functions, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__kineto_save() { return PyModule_Create(&definition); }
