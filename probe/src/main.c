// SPDX-License-Identifier: Apache-2.0
#include "aspects.h"
#include "report.h"
#include "stop.h"

int main(int argc, char **argv)
{
    Options *options = options_read(argc, argv);
    if (options->xml) {
        host_print_xml();
        options_free(options);
        return 0;
    }
    stop_install();
    Host *host = host_load();
    options_settle(options, host);
    switch (options->aspect) {
    case LATENCY:
        latency(options, host);
        break;
    case BANDWIDTH:
        bandwidth(options, host);
        break;
    case CONTENTION:
        contention(options, host);
        break;
    case LOADED_LATENCY:
        loaded_latency(options, host);
        break;
    case CORE_TO_CORE:
        core_to_core(options, host);
        break;
    case LOCKS:
        locks(options, host);
        break;
    case CORRECTNESS:
        correctness(options, host);
        break;
    case CORES:
        cores(options, host);
        break;
    case TAILS:
        tails(options, host);
        break;
    default:
        report_begin(options, host, 0);
    }
    const int status = report_end();
    host_free(host);
    options_free(options);
    return status;
}
