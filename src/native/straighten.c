/* Straightening: an event that no strict parser takes becomes one that all do, or is given up.
 *
 *     window ──► walk (walk.h) ──► mended by lines ──► mended by commas ──► strict text, and what was done to it
 *
 * It does what `formats/chrome_stream.py` and `chrome_repair.py` do, which judge it, for the damage that a whole file may
 * have: where it is not sure, it says None, and they read the event. */

#include "native.h"

#include "event.h"
#include "json.h"
#include "walk.h"

#define NEAR_THE_END 16
#define MOST_MENDED_BYTES ((size_t)1 << 16)
#define QUOTES_OF_A_FIELD 4

/* chrome_repair.Damage */
enum { DAMAGE_NONE, DAMAGE_TYPES, DAMAGE_LENIENT, DAMAGE_NOT_UTF8, DAMAGE_ESCAPES, DAMAGE_COMMAS, DAMAGE_TIMELESS, DAMAGE_LOST };

/* -- where the next event begins -- */

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

static const char *before_blanks(const char *start, const char *end)
{
    while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    return end;
}

/* Whether an object begins at the brace at `at`, the first key of which is one that an event has. */
static int begins_event(const char *at, const char *end)
{
    static const char *const keys[] = {"ph", "name", "cat", "pid", "tid", "ts", "id", "args"};
    at = json_skip_space(at + 1, end);
    for (size_t i = 0; at < end && *at == '"' && i < sizeof keys / sizeof *keys; i++) {
        size_t length = strlen(keys[i]);
        if ((size_t)(end - at) < length + 2 || memcmp(at + 1, keys[i], length) != 0 || at[length + 1] != '"')
            continue;
        const char *colon = json_skip_space(at + length + 2, end);
        return colon < end && *colon == ':';
    }
    return 0;
}

static const char *next_event(const char *at, const char *end)
{
    while (at < end && (at = memchr(at, '{', (size_t)(end - at))) != NULL) {
        if (begins_event(at, end))
            return at;
        at++;
    }
    return NULL;
}

/* -- a line with one field, the string of which lacks its backslashes -- */

/* Whether the members of an object are in the line. -1: not sure. */
static int is_field(Text line)
{
    const char *start = skip_blanks(line.at, line.at + line.length);
    const char *end = before_blanks(start, line.at + line.length);
    if (end > start && end[-1] == ',')
        end--;
    Bytes text = {0};
    bytes_put_char(&text, '{');
    bytes_put(&text, start, (size_t)(end - start));
    bytes_put_char(&text, '}');
    Walk walk = {.end = text.at + text.length};
    const char *after = text.has_failed ? NULL : walk_all(&walk, text.at);
    int answer = walk.fault == WALK_UNSURE || text.has_failed || walk.out.has_failed ? -1 : after == walk.end;
    walk_free(&walk);
    bytes_free(&text);
    return answer;
}

/* The inside of the string of a line like `"key": "string",`, as far as its last quote. Returns 0 if it is none. */
static int find_string(Text line, Text *string)
{
    const char *end = line.at + line.length, *at = skip_blanks(line.at, end);
    if (at == end || *at != '"' || (at = memchr(at + 1, '"', (size_t)(end - at - 1))) == NULL)
        return 0;
    at = skip_blanks(at + 1, end);
    if (at == end || *at != ':')
        return 0;
    at = skip_blanks(at + 1, end);
    if (at == end || *at != '"')
        return 0;
    string->at = at + 1;
    end = before_blanks(at, end);
    if (end[-1] == ',')
        end = before_blanks(at, end - 1);
    if (end - 1 < string->at || end[-1] != '"')
        return 0;
    string->length = (size_t)(end - 1 - string->at);
    return 1;
}

static int is_hex(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

/* How many bytes the escape at `at`, a backslash, has; 0 if it is none. */
static size_t escape_bytes(const char *at, const char *end)
{
    if (end - at >= 2 && at[1] != 0 && strchr("\"\\/bfnrt", at[1]) != NULL)
        return 2;
    return end - at >= 6 && at[1] == 'u' && is_hex(at[2]) && is_hex(at[3]) && is_hex(at[4]) && is_hex(at[5]) ? 6 : 0;
}

static void put_escaped(Bytes *out, Text string)
{
    const char *end = string.at + string.length;
    for (const char *at = string.at; at < end;) {
        size_t length = *at == '\\' ? escape_bytes(at, end) : 0;
        if (length == 0 && (*at == '\\' || *at == '"'))
            bytes_put_char(out, '\\');
        length += length == 0;
        bytes_put(out, at, length);
        at += length;
    }
}

static int is_suspicious(Text line)
{
    int num_quotes = 0;
    for (size_t i = 0; i < line.length; i++) {
        num_quotes += line.at[i] == '"';
        if (line.at[i] == '\\' || num_quotes > QUOTES_OF_A_FIELD)
            return 1;
    }
    return 0;
}

/* Returns 0 if it is not sure what to do. */
static int mend_line(Bytes *out, Text line)
{
    Text string;
    if (!is_suspicious(line) || !find_string(line, &string)) {
        bytes_put(out, line.at, line.length);
        return 1;
    }
    int is_fine = is_field(line);
    if (is_fine != 0) {
        bytes_put(out, line.at, line.length);
        return is_fine > 0;
    }
    bytes_put(out, line.at, (size_t)(string.at - line.at));
    put_escaped(out, string);
    const char *behind = string.at + string.length;
    bytes_put(out, behind, (size_t)(line.at + line.length - behind));
    return 1;
}

static int mend_lines(Bytes *out, const char *at, const char *end)
{
    for (;;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!mend_line(out, (Text){at, (size_t)((line_end != NULL ? line_end : end) - at)}))
            return 0;
        if (line_end == NULL)
            return !out->has_failed;
        bytes_put_char(out, '\n');
        at = line_end + 1;
    }
}

/* -- one event -- */

/* What is done to an event: its size in the window, and how far it was read in vain. */
typedef struct {
    Walk walk;
    int damage;
    size_t size, num_vain;
} Straight;

/* Tries to read the event in a piece of text. Returns 0 if it is not sure. */
static int mend(Straight *straight, const char *at, const char *end, int notes)
{
    Bytes lines = {0};
    int is_sure = mend_lines(&lines, at, end);
    straight->damage = DAMAGE_LOST;
    for (int tries = 0; is_sure && tries < 2 && straight->damage == DAMAGE_LOST; tries++) {
        walk_free(&straight->walk);
        straight->walk = (Walk){.end = lines.at + lines.length, .skips_commas = tries, .notes_not_finite = notes};
        if (walk_all(&straight->walk, lines.at) != NULL)
            straight->damage = tries == 0 ? DAMAGE_ESCAPES : DAMAGE_COMMAS;
        is_sure = straight->walk.fault != WALK_UNSURE && !straight->walk.timeless;
    }
    bytes_free(&lines);
    return is_sure;
}

/* Returns 0 if somebody else should read the event at `at`. */
static int straighten_event(Straight *straight, const char *at, const char *look_end, const char *end, int notes)
{
    straight->walk = (Walk){.end = look_end, .notes_not_finite = notes};
    const char *after = NULL;
    if (*at == '{') {
        after = walk_all(&straight->walk, at);
        if (after == NULL && (straight->walk.fault != WALK_BAD || look_end - straight->walk.reached <= NEAR_THE_END))
            return 0;
    } else if (*at != 0 && strchr("\"[-0123456789tfnNI", *at) != NULL) {
        return 0; /* a value, but no event */
    } else {
        straight->walk.reached = at;
    }
    if (after != NULL) {
        straight->size = (size_t)(after - at);
        straight->damage = !straight->walk.is_changed   ? DAMAGE_NONE
                           : straight->walk.is_strict   ? DAMAGE_TYPES
                           : straight->walk.is_not_utf8 ? DAMAGE_NOT_UTF8
                           : straight->walk.timeless    ? DAMAGE_TIMELESS
                                                        : DAMAGE_LENIENT;
        return !(straight->walk.is_not_utf8 && straight->walk.timeless);
    }
    straight->num_vain = (size_t)(straight->walk.reached - at);
    straight->damage = DAMAGE_LOST;
    const char *following = next_event(at + 1, end);
    if (following == NULL)
        return 0;
    straight->size = (size_t)(following - at);
    return *at != '{' || straight->size > MOST_MENDED_BYTES || mend(straight, at, following, notes);
}

PyObject *straighten(PyObject *Py_UNUSED(nobody), PyObject *arguments)
{
    Py_buffer window;
    Py_ssize_t at, look_end, end;
    int notes;
    if (!PyArg_ParseTuple(arguments, "py*nnn", &notes, &window, &at, &look_end, &end))
        return NULL;
    Straight straight = {.damage = DAMAGE_NONE};
    PyObject *result = NULL;
    const char *start = window.buf;
    if (at < 0 || at >= look_end || look_end > end || end > window.len)
        PyErr_SetString(PyExc_ValueError, "There is no such piece of the text.");
    else if (!straighten_event(&straight, start + at, start + look_end, start + end, notes))
        result = new_none();
    else if (straight.walk.out.has_failed || straight.walk.notes.has_failed || straight.walk.path.has_failed)
        PyErr_NoMemory();
    else
        result = Py_BuildValue("ny#iIn", (Py_ssize_t)straight.size,
                               straight.damage == DAMAGE_LOST ? "" : straight.walk.out.at,
                               straight.damage == DAMAGE_LOST ? (Py_ssize_t)0 : (Py_ssize_t)straight.walk.out.length,
                               straight.damage, straight.walk.num_not_finite, (Py_ssize_t)straight.num_vain);
    walk_free(&straight.walk);
    PyBuffer_Release(&window);
    return result;
}
