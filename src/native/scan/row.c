/* See row.h. */

#include "scan/row.h"

#include <stddef.h>
#include <string.h>

#include "text/json.h"
#include "text/numbers.h"

static RowVerdict verdict_of(JsonFault fault)
{
    return fault == JSON_CUT ? ROW_CUT : ROW_REFUSED;
}

static int is_number_start(char byte)
{
    return byte == '-' || (byte >= '0' && byte <= '9');
}

/* `at` is at an opening quote. `piece` gets the text between the quotes. */
static const char *read_string(const char *at, const char *end, Text *piece, JsonFault *fault)
{
    unsigned marks = 0;
    const char *after = json_skip_string(at + 1, end, &marks, fault);
    if (after != NULL) *piece = (Text){at + 1, (size_t)(after - at - 2)};
    return after;
}

static unsigned key_bucket(const char *key, size_t length)
{
    return ((unsigned)length * 37u + (uint8_t)key[0] * 11u + (uint8_t)key[length - 1] * 5u) & 255u;
}

void keys_add(Keys *keys, Key key)
{
    uint8_t *bucket = &keys->buckets[key_bucket(key.text, key.length)];
    keys->keys[keys->num] = key;
    keys->next_key[keys->num] = *bucket;
    *bucket = (uint8_t)++keys->num;
}

static const Key *find_key(const Keys *keys, const char *text, size_t length)
{
    if (length == 0) return NULL;
    for (unsigned number = keys->buckets[key_bucket(text, length)]; number != 0;
         number = keys->next_key[number - 1]) {
        const Key *key = &keys->keys[number - 1];
        if (key->length == length && memcmp(key->text, text, length) == 0) return key;
    }
    return NULL;
}

/* Whether a key with backslashes may be one that has a column: if it writes a plain character as a
 * number. */
static int may_escape_plain(const char *key, size_t length)
{
    for (size_t i = 0; i + 6 <= length; i++) {
        if (key[i] != '\\') continue;
        if (memcmp(key + i, "\\u00", 4) == 0 && key[i + 4] >= '2' && key[i + 4] <= '7') return 1;
        i++; /* the character after a backslash begins no escape */
    }
    return 0;
}

static void note_number(Row *row, const Key *key, int64_t value)
{
    uint32_t bit = (uint32_t)1 << key->column;
    if ((row->has_number & bit) && row->ranks[key->column] < key->rank) return;
    row->has_number |= bit;
    row->ranks[key->column] = key->rank;
    row->numbers[key->column] = value;
}

static void note_text(Row *row, const Key *key, Text piece)
{
    uint32_t bit = (uint32_t)1 << key->column;
    if ((row->has_text & bit) && row->text_ranks[key->column] < key->rank) return;
    row->has_text |= bit;
    row->text_ranks[key->column] = key->rank;
    row->texts[key->column] = piece;
}

/* Notes a member of the arguments. Returns 0 if its key came before. */
static int note_argument(Row *row, const Keys *keys, const Key *key, const char *value,
                         const char *after)
{
    uint64_t bit = (uint64_t)1 << (key - keys->keys);
    int64_t number;
    if (row->seen_keys & bit) return 0;
    row->seen_keys |= bit;
    if (key->is_text)
        note_text(row, key, (Text){value, (size_t)(after - value)});
    else if (is_number_start(*value) &&
             read_integer((Text){value, (size_t)(after - value)}, &number))
        note_number(row, key, number);
    return 1;
}

/* `start` is at the opening brace of the arguments. */
static const char *read_args(const Keys *keys, Row *row, const char *start, const char *end,
                             JsonFault *fault)
{
    JsonMembers members = json_members(start, end);
    while (json_next(&members)) {
        const char *value = json_skip_member(&members).at;
        if (value == NULL) break;
        const Key *known = find_key(keys, members.key.at, members.key.length);
        if ((members.marks & JSON_ESCAPED &&
             may_escape_plain(members.key.at, members.key.length)) ||
            (known != NULL && !note_argument(row, keys, known, value, members.at)))
            json_refuse(&members, JSON_BAD);
    }
    *fault = members.fault;
    if (members.at == NULL) return NULL;
    row->args = (Text){start, (size_t)(members.at - start)};
    row->has_args = 1;
    return members.at;
}

static const char *refuse(JsonFault *fault)
{
    *fault = JSON_BAD;
    return NULL;
}

static const char *read_text_field(Text *piece, uint8_t *has, const char *at, const char *end,
                                   JsonFault *fault)
{
    if (*at != '"' || *has) return refuse(fault);
    *has = 1;
    return read_string(at, end, piece, fault);
}

/* Reads a pid or tid: an integer or a string as written, with its quotes. */
static const char *read_place(Text *piece, uint8_t *has, const char *at, const char *end,
                              JsonFault *fault)
{
    int64_t number;
    if (*has) return refuse(fault);
    *has = 1;
    const char *after = *at == '"' || is_number_start(*at) ? json_skip_value(at, end, fault)
                                                           : refuse(fault);
    if (after == NULL) return NULL;
    *piece = (Text){at, (size_t)(after - at)};
    return *at == '"' || (read_integer(*piece, &number) && !TEXT_IS(*piece, "-0")) ? after
                                                                                   : refuse(fault);
}

static const char *read_time_field(Row *row, int column, const char *at, const char *end,
                                   JsonFault *fault)
{
    uint32_t bit = (uint32_t)1 << column;
    if (!is_number_start(*at) || (row->has_number & bit)) return refuse(fault);
    row->has_number |= bit;
    const char *after = read_us(at, end, &row->numbers[column]);
    if (after == NULL && json_skip_value(at, end, fault) != NULL)
        return refuse(fault); /* a number, but not a simple one */
    if (column == NUMBER_DUR && after != NULL && row->numbers[column] < 0)
        return refuse(fault); /* Python leaves it out, and counts it */
    return after;
}

static const char *read_id(Row *row, const char *at, const char *end, JsonFault *fault)
{
    uint32_t bit = (uint32_t)1 << NUMBER_ID;
    if (row->has_number & bit || row->has_id_text) return refuse(fault);
    if (*at == '"') {
        row->has_id_text = 1;
        return read_string(at, end, &row->id, fault);
    }
    const char *after = is_number_start(*at) ? json_skip_value(at, end, fault) : refuse(fault);
    if (after != NULL && !read_integer((Text){at, (size_t)(after - at)}, &row->numbers[NUMBER_ID]))
        return refuse(fault);
    row->has_number |= bit;
    return after;
}

static const char *read_phase(Row *row, const char *at, const char *end, JsonFault *fault)
{
    Text phase;
    at = read_text_field(&phase, &row->has_phase, at, end, fault);
    if (at == NULL) return NULL;
    if (phase.length != 1 || (uint8_t)phase.at[0] >= 127) return refuse(fault);
    row->phase = (uint8_t)phase.at[0];
    return at;
}

static const char *read_other_field(Row *row, const char *key, const char *at, const char *end,
                                    JsonFault *fault)
{
    if (row->num_fields == MAX_FIELDS) return refuse(fault);
    at = json_skip_value(at, end, fault);
    if (at != NULL) row->fields[row->num_fields++] = (Text){key - 1, (size_t)(at - (key - 1))};
    return at;
}

static const char *read_field(const Keys *keys, Row *row, Text key, const char *at, const char *end,
                              JsonFault *fault)
{
    if (TEXT_IS(key, "name")) return read_text_field(&row->name, &row->has_name, at, end, fault);
    if (TEXT_IS(key, "cat"))
        return read_text_field(&row->category, &row->has_category, at, end, fault);
    if (TEXT_IS(key, "ts")) return read_time_field(row, NUMBER_TS, at, end, fault);
    if (TEXT_IS(key, "dur")) return read_time_field(row, NUMBER_DUR, at, end, fault);
    if (TEXT_IS(key, "pid")) return read_place(&row->pid, &row->has_pid, at, end, fault);
    if (TEXT_IS(key, "tid")) return read_place(&row->tid, &row->has_tid, at, end, fault);
    if (TEXT_IS(key, "ph")) return read_phase(row, at, end, fault);
    if (TEXT_IS(key, "id")) return read_id(row, at, end, fault);
    if (TEXT_IS(key, "args"))
        return *at == '{' && !row->has_args ? read_args(keys, row, at, end, fault) : refuse(fault);
    return read_other_field(row, key.at, at, end, fault);
}

RowVerdict row_read(const Keys *keys, Row *row, const char **at, const char *end)
{
    JsonMembers members = json_members(*at, end);
    memset(row, 0, offsetof(Row, numbers));
    row->has_text = 0, row->seen_keys = 0, row->num_fields = 0;
    while (json_next(&members)) {
        if (members.marks & JSON_ESCAPED && may_escape_plain(members.key.at, members.key.length))
            return ROW_REFUSED;
        members.at = read_field(keys, row, members.key, members.at, end, &members.fault);
    }
    if (members.at == NULL) return verdict_of(members.fault);
    if (!row->has_phase) return ROW_REFUSED;
    *at = members.at;
    return ROW_TAKEN;
}
