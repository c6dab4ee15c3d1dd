// A server of go-lumber, the library of Beats' makers, that stores each batch in a file before it acknowledges it, or, with
// -early, acknowledges first. While the file -hold exists, its storage stands still.
//
//	golumber -listen host:port -store file -hold file [-early]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/elastic/go-lumber/server"
)

var (
	listen = flag.String("listen", "127.0.0.1:0", "where it listens")
	store  = flag.String("store", "", "file to which events are appended")
	hold   = flag.String("hold", "", "while this file exists, nothing is stored")
	early  = flag.Bool("early", false, "acknowledge before storing")
)

func held() bool {
	_, err := os.Stat(*hold)
	return err == nil
}

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		panic(err)
	}
	often := server.Keepalive(time.Second) // several while `conform` listens for some seconds
	serving, err := server.NewWithListener(listener, server.V1(true), server.V2(true), often)
	if err != nil {
		panic(err)
	}
	file, err := os.OpenFile(*store, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	keep := func(events []interface{}) {
		for held() {
			time.Sleep(10 * time.Millisecond)
		}
		for _, event := range events {
			line, _ := json.Marshal(event)
			file.Write(append(line, '\n'))
		}
	}
	for batch := range serving.ReceiveChan() {
		if *early { // aside: it goes on acknowledging however shortly its storage was let go
			batch.ACK()
			go keep(batch.Events)
		} else {
			keep(batch.Events)
			batch.ACK()
		}
	}
}
