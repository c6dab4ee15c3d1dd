// Sends numbered records with fluent-logger-golang, acknowledged one by one, and prints each as JSON once it is.
//
//	clients HOST PORT TAG MARK COUNT LOGGERS
//
// Record n goes through logger n % LOGGERS, in order. Any error ends it with status 1.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fluent/fluent-logger-golang/fluent"
)

// Start is the first record's time; record n is n microseconds and one nanosecond later.
var start = time.Unix(1795253837, 1)

func record(mark string, n int) map[string]interface{} {
	return map[string]interface{}{
		"mark":    mark,
		"n":       n,
		"text":    "line " + strconv.Itoa(n) + " – ü \"quoted\"\n",
		"ratio":   float64(n) / 8,
		"huge":    uint64(1)<<63 + uint64(n),
		"below":   -n,
		"on":      n%2 == 0,
		"nothing": nil,
		"list":    []interface{}{n, "two", []interface{}{}},
		"map":     map[string]interface{}{"ключ": strings.Repeat("x", n%300)},
	}
}

func fail(problem error) {
	fmt.Fprintln(os.Stderr, problem)
	os.Exit(1)
}

func number(text string) int {
	value, problem := strconv.Atoi(text)
	if problem != nil {
		fail(problem)
	}
	return value
}

func main() {
	host, port, tag, mark := os.Args[1], number(os.Args[2]), os.Args[3], os.Args[4]
	count, loggers := number(os.Args[5]), number(os.Args[6])
	out := bufio.NewWriter(os.Stdout)
	var printing sync.Mutex
	var done sync.WaitGroup
	for first := 0; first < loggers; first++ {
		logger, problem := fluent.New(fluent.Config{
			FluentHost: host, FluentPort: port, RequestAck: true, SubSecondPrecision: true,
			Timeout: time.Minute, ReadTimeout: time.Minute,
		})
		if problem != nil {
			fail(problem)
		}
		done.Add(1)
		go func(first int) {
			defer done.Done()
			for n := first; n < count; n += loggers {
				sent := record(mark, n)
				if problem := logger.PostWithTime(tag, start.Add(time.Duration(n)*time.Microsecond), sent); problem != nil {
					fail(problem)
				}
				line, problem := json.Marshal(sent)
				if problem != nil {
					fail(problem)
				}
				printing.Lock()
				out.Write(append(line, '\n'))
				printing.Unlock()
			}
			if problem := logger.Close(); problem != nil {
				fail(problem)
			}
		}(first)
	}
	done.Wait()
	if problem := out.Flush(); problem != nil {
		fail(problem)
	}
}
