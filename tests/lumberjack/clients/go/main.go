// Sends events with go-lumber's clients, the library inside Beats: each combination over a connection of its own, all at
// the same time. Writes a JSON line for each when all its events are acknowledged.
//
//	clients [-plain host:port] [-tls host:port -ca file] [-count n] [-only name] mark
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	v2 "github.com/elastic/go-lumber/client/v2"
)

type combination struct {
	mode   string
	level  int
	tls    bool
	window int
}

func (c combination) name() string {
	transport := "plain"
	if c.tls {
		transport = "tls"
	}
	return fmt.Sprintf("%s-%d-%s-%d", c.mode, c.level, transport, c.window)
}

type report struct {
	Name         string  `json:"name"`
	Acknowledged int     `json:"acknowledged"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Seconds      float64 `json:"seconds"`
	Problem      string  `json:"problem"`
}

var (
	plain   = flag.String("plain", "", "receiver without TLS")
	secure  = flag.String("tls", "", "receiver with TLS")
	ca      = flag.String("ca", "", "PEM file of its authority")
	count   = flag.Int("count", 1000, "events of each combination")
	only    = flag.String("only", "", "name of the one combination to run")
	timeout = flag.Duration("timeout", 30*time.Second, "as Beats' timeout")
)

// The size and shape of a Filebeat event.
func event(mark, name string, n int) interface{} {
	return map[string]interface{}{
		"@metadata":  map[string]interface{}{"beat": "filebeat", "type": "_doc", "version": "8.17.0"},
		"@timestamp": time.UnixMilli(1795253837000 + int64(n)).UTC().Format("2006-01-02T15:04:05.000Z"),
		"agent":      map[string]interface{}{"id": mark, "ephemeral_id": "e-" + mark, "hostname": "vm", "type": "filebeat"},
		"log":        map[string]interface{}{"file": map[string]interface{}{"path": "/var/log/" + name}, "offset": 100 * n},
		"input":      map[string]interface{}{"type": "filestream"},
		"message":    fmt.Sprintf("10.0.0.%d - - \"GET /cart/%d HTTP/1.1\" 200 %d \"ünï <日本> &\"", n%256, n, 100+n%900),
		"mark":       mark, "name": name, "n": n,
	}
}

func batches(mark, name string, window int) [][]interface{} {
	var all [][]interface{}
	for first := 0; first < *count; first += window {
		var batch []interface{}
		for n := first; n < first+window && n < *count; n++ {
			batch = append(batch, event(mark, name, n))
		}
		all = append(all, batch)
	}
	return all
}

func dial(c combination) (net.Conn, error) {
	if !c.tls {
		return net.Dial("tcp", *plain)
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return tls.Dial("tcp", *secure, &tls.Config{RootCAs: roots, ServerName: "localhost"})
}

func send(c combination, mark string) (latencies []float64, acknowledged int, err error) {
	conn, err := dial(c)
	if err != nil {
		return nil, 0, err
	}
	options := []v2.Option{v2.CompressionLevel(c.level), v2.Timeout(*timeout)}
	all := batches(mark, c.name(), c.window)
	if c.mode == "sync" {
		client, err := v2.NewSyncClientWithConn(conn, options...)
		if err != nil {
			return nil, 0, err
		}
		defer client.Close()
		for _, batch := range all {
			began := time.Now()
			n, err := client.Send(batch)
			acknowledged += n
			if err != nil {
				return latencies, acknowledged, err
			}
			latencies = append(latencies, time.Since(began).Seconds())
		}
		return latencies, acknowledged, nil
	}
	client, err := v2.NewAsyncClientWithConn(conn, 2, options...) // Beats' default pipelining
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	var lock sync.Mutex
	var done sync.WaitGroup
	for _, batch := range all {
		began := time.Now()
		done.Add(1)
		failed := client.Send(func(n uint32, problem error) {
			lock.Lock()
			defer lock.Unlock()
			defer done.Done()
			acknowledged += int(n)
			if problem != nil {
				err = problem
			}
			latencies = append(latencies, time.Since(began).Seconds())
		}, batch)
		if failed != nil {
			break
		}
	}
	done.Wait()
	return latencies, acknowledged, err
}

func run(c combination, mark string) report {
	began := time.Now()
	latencies, acknowledged, err := send(c, mark)
	told := report{Name: c.name(), Acknowledged: acknowledged, Seconds: time.Since(began).Seconds()}
	if err != nil {
		told.Problem = err.Error()
	}
	if len(latencies) > 0 {
		sort.Float64s(latencies)
		told.P50 = 1000 * latencies[len(latencies)/2]
		told.P99 = 1000 * latencies[len(latencies)*99/100]
	}
	return told
}

func main() {
	flag.Parse()
	mark := flag.Arg(0)
	var running sync.WaitGroup
	var lock sync.Mutex
	for _, mode := range []string{"sync", "async"} {
		for _, level := range []int{0, 3} {
			for _, transport := range []bool{false, true} {
				for _, window := range []int{1, 7, 2048} {
					c := combination{mode, level, transport, window}
					if *only != "" && !strings.EqualFold(*only, c.name()) {
						continue
					}
					running.Add(1)
					go func() {
						defer running.Done()
						told, _ := json.Marshal(run(c, mark))
						lock.Lock()
						defer lock.Unlock()
						fmt.Println(string(told))
					}()
				}
			}
		}
	}
	running.Wait()
}
