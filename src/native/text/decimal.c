/* See decimal.h. */

#define _GNU_SOURCE /* strtod_l */

#include "text/decimal.h"

#include <locale.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__APPLE__)
    #include <xlocale.h>
#elif defined(_WIN32)
    #define locale_t _locale_t
    #define newlocale(mask, name, base) _create_locale(LC_ALL, name)
    #define freelocale _free_locale
    #define strtod_l _strtod_l
#endif

/* The C locale, made by the first thread that needs it; 0 if there is no memory. */
static locale_t c_locale(void)
{
    static _Atomic(locale_t) made;
    locale_t locale = atomic_load_explicit(&made, memory_order_acquire), others = (locale_t)0;
    if (locale != (locale_t)0) return locale;
    locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (atomic_compare_exchange_strong_explicit(&made, &others, locale, memory_order_acq_rel,
                                                memory_order_acquire))
        return locale;
    if (locale != (locale_t)0) freelocale(locale);
    return others;
}

double decimal_value(const char *text)
{
    locale_t locale = c_locale();
    return locale != (locale_t)0 ? strtod_l(text, NULL, locale) : strtod(text, NULL);
}
