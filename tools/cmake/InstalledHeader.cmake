# Run with cmake -P: writes OUTPUT, the copy of the header or table FILE that is installed. Headers of the repository
# include each other as "ir/error.h"; the copy says <srjit/ir/error.h>. So a program needs no second folder of headers,
# and may have a folder `ir` of its own. LAYERS are the folders that such names begin with, separated by "|".
file(READ ${FILE} text)
string(REGEX REPLACE "(#[ \t]*include[ \t]*)\"(tools/)?((${LAYERS})/[^\"\n]+)\"" "\\1<srjit/\\3>" text "${text}")
if(text MATCHES "#[ \t]*include[ \t]*\"[^\"\n]*\"")
  message(FATAL_ERROR "${FILE} is installed, and contains ${CMAKE_MATCH_0}. "
    "Begin the name with a layer (${LAYERS}), so that a program finds the installed copy of that header.")
endif()
file(WRITE ${OUTPUT} "${text}")
